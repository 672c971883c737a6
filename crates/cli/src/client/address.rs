//! Addresses of servers on the command line: a URL, or `host:port` as the server logs it.

use url::Url;

/// The default port of the gRPC services.
const PORT: u16 = 50051;

#[derive(Debug, Clone)]
pub(crate) struct Address {
    plain: String,
    /// The same address over TLS.
    tls: String,
}

impl Address {
    /// Returns the URL. An address without a scheme uses `https` if TLS is configured.
    pub(super) fn url(&self, has_tls: bool) -> &str {
        if has_tls { &self.tls } else { &self.plain }
    }
}

/// Parses an address of the command line.
pub(super) fn url(text: &str) -> Result<Address, String> {
    let text = text.trim();
    if let Some((scheme, _)) = text.split_once("://") {
        if !matches!(scheme, "http" | "https") {
            return Err(format!(
                "the scheme `{scheme}` is not supported: write host:port, http://host:port, or \
                 https://host:port for TLS"
            ));
        }
        check(text)?;
        return Ok(Address {
            // A URL states its scheme, so TLS flags do not change it.
            plain: text.to_owned(),
            tls: text.to_owned(),
        });
    }
    let mut authority = text.to_owned();
    let url = check(&format!("http://{text}"))?;
    // The parsed URL omits port 80, because it is the default of the scheme.
    if url.port().is_none() && !text.ends_with(":80") {
        authority = format!("{text}:{PORT}");
    }
    Ok(Address {
        plain: format!("http://{authority}"),
        tls: format!("https://{authority}"),
    })
}

fn check(text: &str) -> Result<Url, String> {
    let expected = "write host:port, such as 127.0.0.1:50051, or a URL, such as https://host:50051";
    let url = Url::parse(text).map_err(|error| format!("{error}: {expected}"))?;
    // The path of a gRPC call is the name of its method, so a path in the address is a mistake.
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    if url.host().is_none() || !is_bare || !url.username().is_empty() {
        return Err(format!("has more than a host and a port: {expected}"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_addresses_and_urls_are_both_accepted() {
        let cases = [
            (
                "127.0.0.1:50051",
                "http://127.0.0.1:50051",
                "https://127.0.0.1:50051",
            ),
            ("[::1]:6000", "http://[::1]:6000", "https://[::1]:6000"),
            (
                "localhost",
                "http://localhost:50051",
                "https://localhost:50051",
            ),
            // Port 80 is given, although the parsed URL omits it.
            ("host:80", "http://host:80", "https://host:80"),
            ("http://host:1", "http://host:1", "http://host:1"),
            ("https://host", "https://host", "https://host"),
        ];
        for (given, plain, tls) in cases {
            let address = url(given).unwrap();
            assert_eq!(
                (address.url(false), address.url(true)),
                (plain, tls),
                "{given}"
            );
        }
    }

    #[test]
    fn an_invalid_address_error_lists_the_valid_forms() {
        for bad in [
            "grpc://host:1", "host:port", "", "host:1/path", "http://", "a b:1",
        ] {
            let error = url(bad).unwrap_err();
            assert!(error.contains("https://host:"), "{bad}: {error}");
        }
        assert!(url("grpc://host:1").unwrap_err().contains("`grpc`"));
    }
}
