"""Files to records' raw lines, with bounded memory and named damage."""
