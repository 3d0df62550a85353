"""The tools, prompts and resources of servers that clients see directly, without a program."""
