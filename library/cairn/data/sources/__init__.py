"""Files to rows: every kind of file, local or remote, with bounded memory and named damage."""
