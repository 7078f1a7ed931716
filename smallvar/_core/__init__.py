"""What the families share: data, validation, threads, the loop of a fit, linear algebra."""
