"""One nested call of a program: the check of its arguments, the decision about it, and the way to a tool and back."""
