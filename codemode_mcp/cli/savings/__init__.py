"""The savings and extra costs of code mode, measured with the user's own servers and recorded runs.

`measure` asks the servers for their tools. `exposure` has the sizes of tools in a prompt, and `tasks` the bytes that
recorded runs have sent through the model. `report` compares them in words, and `text` and `plot` draw the report.
"""
