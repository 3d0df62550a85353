"""The text of a program: its preparation before a run, the location of its errors after, and TypeScript."""
