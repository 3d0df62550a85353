"""The composition root: everything is opened, wired and closed here."""
