"""The savings and extra costs of code mode, measured with the user's own servers and recorded runs.

`measure` asks the servers for their tools. `exposure` computes the sizes of tools in a prompt. `tasks` computes the
bytes that recorded runs sent through the model. `report` compares both. `text` draws the report.
"""
