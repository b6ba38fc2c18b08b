"""Operations: runs as real server and client processes, on this machine or on separate ones."""
