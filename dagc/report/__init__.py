"""What people read: pictures, tables."""
