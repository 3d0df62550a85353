"""Records of events: logs, the trajectory, OpenTelemetry. Secrets are redacted by `redaction` only."""

from codemode_mcp.audit.events import Auditor, Event
from codemode_mcp.audit.logs import RedactingFormatter, logging_to, set_level
from codemode_mcp.audit.redaction import MAX_HOLDERS, Redactor

__all__ = ["MAX_HOLDERS", "Auditor", "Event", "RedactingFormatter", "Redactor", "logging_to", "set_level"]
