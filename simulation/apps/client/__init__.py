"""Users' client apps: fedsel's line in a user's ClientApp enrols, reports, compresses updates and keeps states."""
