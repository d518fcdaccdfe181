"""What a part gives: ceilings and links."""
