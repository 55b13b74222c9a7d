"""Who else can start ranks: a Ray cluster."""
