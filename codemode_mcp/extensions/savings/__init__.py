"""The savings and extra costs of code mode, measured with the user's own servers and recorded runs.

`measure` asks the servers for their tools. `tasks` computes the sizes of tools in a prompt, and the bytes that recorded
runs sent through the model. `report` compares both, and writes the report as text.
"""
