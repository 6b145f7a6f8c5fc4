"""Other programs' training configurations, turned into recipes: one file a dialect, one mechanism for all."""
