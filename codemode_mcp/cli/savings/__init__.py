"""Savings of code mode, and its extra costs, measured on the user's own servers and recorded runs.

`exposure` counts what tools take of a prompt, `tasks` what recorded runs have sent through the model; `report` puts
both together and judges, `text` and `plot` show it. `measure` alone does anything: it asks the servers.
"""
