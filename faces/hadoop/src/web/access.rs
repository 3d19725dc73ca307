//! Who may ask: whoever reaches the port, but no page of the web that a browser on this machine shows.

use hyper::Method;
use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use savanna_files_host::{Class, FilesError};

/// Checks the head of a request.
pub(super) fn check(head: &Parts, loopback_only: bool) -> Result<(), FilesError> {
    let refused = |why: &str| Err(FilesError::new(Class::AccessControl, why));
    if is_of_a_page(&head.method, &head.headers) {
        return refused("this came from a page of the web, which may not use files");
    }
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    let name = name.trim_matches(['[', ']']);
    // Or a page could call this machine by a name of its own.
    let is_local =
        name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok();
    if loopback_only && !is_local {
        return refused("expected an address or `localhost` in the header Host, came another name");
    }
    Ok(())
}

/// Whether a browser sent this for a page; what its user typed into it may be looked at.
fn is_of_a_page(method: &Method, headers: &HeaderMap) -> bool {
    let is_typed = |value: &hyper::header::HeaderValue| value == "none" && *method == Method::GET;
    headers.contains_key(ORIGIN) || headers.get("sec-fetch-site").is_some_and(|value| !is_typed(value))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn may_ask(method: &str, headers: &[(&str, &str)], loopback_only: bool) -> bool {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri("/"), |request, (name, value)| request.header(*name, *value));
        check(&request.body(()).unwrap().into_parts().0, loopback_only).is_ok()
    }

    #[test]
    fn no_page_of_the_web_asks() {
        for host in ["127.0.0.1:9870", "localhost:9870", "LOCALHOST", "[::1]:9870", "[::1]", ""] {
            assert!(may_ask("PUT", &[("host", host)], true), "{host}");
        }
        assert!(may_ask("GET", &[("host", "localhost:9870"), ("sec-fetch-site", "none")], true));
        assert!(!may_ask("POST", &[("host", "localhost:9870"), ("sec-fetch-site", "none")], true));
        assert!(!may_ask("POST", &[("host", "localhost:9870"), ("sec-fetch-site", "cross-site")], true));
        assert!(!may_ask("POST", &[("host", "127.0.0.1:9870"), ("origin", "https://evil.example")], true));
        assert!(!may_ask("GET", &[("host", "evil.example:9870")], true));
        assert!(may_ask("GET", &[("host", "node-1.example:9870")], false));
    }
}
