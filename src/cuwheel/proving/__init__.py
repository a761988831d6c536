"""The proof that a wheel works: installed apart, imported, tried."""
