"""The forms of keys and tokens by which they are recognised. Data only.

The forms are those that the issuers document. Each form has a fixed beginning or middle part, its mark. A text without
any mark has no token, and looking for marks is a hundred times faster than matching patterns. Repetitions have bounds,
and no two parts of a pattern can match the same text, so matching takes linear time. Forms without a mark, such as
32 hexadecimal digits, are left out: they are mostly hashes and ids.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_START: Final = r"(?<![\w-])"


class TokenForm(NamedTuple):
    """A form of tokens.

    Attributes:
        kind: the words for a reader.
        marks: texts of which a token has one.
        pattern: a regular expression.
    """

    kind: str
    marks: tuple[str, ...]
    pattern: str


FORMS: Final = (
    TokenForm(
        "private key",
        ("-----BEGIN",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    TokenForm("private key", ("AGE-SECRET-KEY-1",), _START + r"AGE-SECRET-KEY-1[0-9A-Z]{50,70}"),
    TokenForm("JSON web token", ("eyJ",), _START + r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    TokenForm(
        "GitHub token",
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"),
        _START + r"(?:gh[opsur]_|github_pat_)[\w-]{16,255}",
    ),
    TokenForm(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"),
        _START + r"gl(?:pat|dt|rt|cbt|ptt)-[\w-]{16,255}",
    ),
    TokenForm("API key", ("sk-", "sk_", "rk_", "pk_"), _START + r"(?:sk-|sk_|rk_|pk_)[\w-]{16,255}"),
    TokenForm("webhook secret", ("whsec_",), _START + r"whsec_[\w+/=-]{16,255}"),
    TokenForm("Slack token", ("xox", "xapp-"), _START + r"(?:xox[abeoprs]-|xapp-)[\w-]{16,255}"),
    TokenForm("Slack webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows)/[\w/-]{20,200}"),
    TokenForm("npm token", ("npm_",), _START + r"npm_[\w-]{16,255}"),
    TokenForm("PyPI token", ("pypi-",), _START + r"pypi-[\w-]{16,255}"),
    TokenForm("Docker token", ("dckr_pat_", "dckr_oat_"), _START + r"dckr_[po]at_[\w-]{16,255}"),
    TokenForm("Hugging Face token", ("hf_",), _START + r"hf_[\w-]{16,255}"),
    TokenForm("API key", ("gsk_", "r8_", "xai-"), _START + r"(?:gsk_|r8_|xai-)[A-Za-z0-9]{30,255}(?![\w-])"),
    TokenForm("Google token", ("ya29.", "GOCSPX-"), _START + r"(?:ya29\.|GOCSPX-)[\w-]{16,}"),
    TokenForm("Google API key", ("AIza",), _START + r"AIza[\w-]{35}"),
    TokenForm("AWS access key", ("AKIA", "ASIA"), _START + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)"),
    TokenForm("Azure key", ("AccountKey=", "SharedAccessKey="), r"(?:AccountKey|SharedAccessKey)=[\w+/=%]{20,200}"),
    TokenForm("DigitalOcean token", ("_v1_",), _START + r"do[oprt]_v1_[0-9a-f]{64}(?!\w)"),
    TokenForm("SendGrid key", ("SG.",), _START + r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    TokenForm("Telegram token", (":AA",), r"(?<![\w:-])[0-9]{8,10}:AA[\w-]{32,34}(?![\w-])"),
    TokenForm("Shopify token", ("shp",), _START + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?!\w)"),
    TokenForm("Square token", ("sq0",), _START + r"sq0(?:atp|csp|idp)-[\w-]{22,60}"),
    TokenForm("Atlassian token", ("ATATT3", "ATCTT3"), _START + r"AT[AC]TT3[\w=-]{40,300}"),
    TokenForm(
        "API key",
        ("lin_api_", "ntn_", "figd_", "PMAK-", "NRAK-", "glsa_", "glc_", "sntrys_", "pscale_tkn_", "dapi"),
        _START
        + r"(?:lin_api_|ntn_|figd_|PMAK-|NRAK-|glsa_|glc_|sntrys_|pscale_tkn_|dapi(?=[0-9a-f]{32}))[\w=.-]{20,300}",
    ),
    TokenForm("Vault token", ("hvs.", "hvb."), _START + r"hv[sb]\.[\w-]{20,300}"),
    TokenForm("Terraform token", (".atlasv1.",), _START + r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70}"),
)
