"""The only place that talks to servers, with the certificates, proxies and logins that pip and uv have."""
