"""Detection of shell commands in place of a program. Pure."""

from __future__ import annotations

import re

_COMMANDS = (
    "apt|apt-get|awk|aws|az|bash|brew|bun|cargo|cat|cd|chmod|chown|cmd|cp|curl|deno|df|diff|docker|du|echo|env|find|"
    "gcloud|gh|git|go|grep|head|jq|kill|kubectl|less|ls|make|man|mkdir|mv|mysql|nano|nc|node|npm|npx|ping|pip|pip3|pnpm|"
    "powershell|ps|psql|pwd|pwsh|pytest|python|python3|rg|rm|rsync|scp|sed|sh|sleep|sort|sqlite3|ssh|sudo|tail|tar|tee|"
    "terraform|test|time|touch|tree|tsc|unzip|uv|vim|wc|wget|which|whoami|xargs|yarn|zip|zsh"
)


_OPERATOR_WORDS = "in|instanceof|of|as|satisfies|is"


_SHELL_LINE = re.compile(
    rf"""
      \#!(?!.*\b(?:node|deno|bun|tsx|ts-node|zx)\b)                   # a script, but none of JavaScript
    | [$%]\ (?!(?:{_OPERATOR_WORDS})\b)(?:[A-Za-z_~/]|\./)             # a prompt
    | (?:[A-Z_][A-Z0-9_]*=\S*\ +)*+
      (?:
        (?:{_COMMANDS})                                               # a command with something that is no operand
        (?:
          \ +(?!(?:{_OPERATOR_WORDS})\b)
          (?:-{{1,2}}[A-Za-z]|-$|--[0-9]|-[0-9]+(?![\w.]|\ *(?:;|$))    # `kill -9;` alone is a subtraction
            |[~./]?/(?:\S|$)|\./|~|\.\.?(?:$|[\s/])|["'$\w*@]|\+[rwx]+\ )
        | \ +(?:-\ +)?<[<-]*\ *["']?[A-Za-z./][\w./-]*["']?(?=\s|$)    # its input
        | \ *(?:\|\|?|&&|;)\ *(?:{_COMMANDS})(?=$|\ +["'\w.~/-])         # and another command
        )
      | \.\.?/[\w.-]+(?:/[\w.-]+)*(?=\s|$) | (?:/[\w.-]+){{3,}}(?=\s|$)  # a file
      )
    | (?:bash|clear|date|env|exit|history|ls|make|printenv|pwd|sh|whoami|yarn|zsh)$
    | export\ [A-Za-z_]\w*= | alias\ [\w-]+=["'] | set\ -[a-z]+(?=\s|$) | source\ +[~./\w-]*[./] | \.\ +[~./\w]
    | (?:if|while)\ \[\[?\ | \[\[?\ +-[a-z]\ +["'$\w./] | for\ \w+\ in\ [^;]*;\ *do\b | while\ [^(;]+;\ *do\b
    | function\ +[\w-]+\ *\{{ | (?:Get|Set|New|Remove|Invoke|Select|Write)-[A-Z]\w+
    """,
    re.VERBOSE,
)


def looks_like_shell(source: str) -> str | None:
    """Return an error message if a program is a shell command, or else None.

    Only the first line of code counts. A JavaScript statement with the same text would need a variable with the name of
    the command, which cannot be declared before the first line.
    """
    for line in source[:10_000].removeprefix("\ufeff").splitlines():
        text = line.strip()
        if not text or text.startswith(("# ", "//")):
            continue
        if _SHELL_LINE.match(text) is None:
            return None
        return (
            "This is a shell command; exec runs JavaScript or TypeScript, without a shell, files or processes. "
            'Call tools instead: return await MCP.<server>.<tool>({...}). API.search("...") finds them.'
        )
    return None
