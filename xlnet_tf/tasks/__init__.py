"""What an XLNet is used for: a backbone with a head."""
