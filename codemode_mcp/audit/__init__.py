"""What is recorded of what happens, and where: logs, the trajectory, OpenTelemetry.

Redaction lives here and only here.
"""

from codemode_mcp.audit.events import Auditor, Event
from codemode_mcp.audit.logs import MAX_HOLDERS, RedactingFormatter, Redactor, logging_to, set_level

__all__ = ["MAX_HOLDERS", "Auditor", "Event", "RedactingFormatter", "Redactor", "logging_to", "set_level"]
