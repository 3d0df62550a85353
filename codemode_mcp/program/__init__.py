"""A program's text before and after its run: what it is, where its errors are, and TypeScript."""
