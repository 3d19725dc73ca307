//! Who may ask: whoever reaches the port, but no page of the web that a browser shows, here or on another machine.

use hyper::Method;
use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use savanna_files_host::{Class, FilesError};

/// Checks the head of a request.
pub(super) fn check(head: &Parts, hosts: &[String]) -> Result<(), FilesError> {
    let refused = |why: &str| Err(FilesError::new(Class::AccessControl, why));
    if is_of_a_page(&head.method, &head.headers) {
        return refused("this came from a page of the web, which may not use files");
    }
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    let name = name.trim_matches(['[', ']']);
    // Or a page could call this machine by a name of its own.
    let is_ours = |ours: &str| name.eq_ignore_ascii_case(ours);
    let is_known = name.is_empty()
        || is_ours("localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
        || hosts.iter().any(|ours| is_ours(ours));
    if !is_known {
        return refused(
            "expected an address, `localhost` or a name of this machine in the header Host, came another name; set files.hosts to the names that it has",
        );
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

    fn may_ask(method: &str, headers: &[(&str, &str)], hosts: &[&str]) -> bool {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri("/"), |request, (name, value)| request.header(*name, *value));
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        check(&request.body(()).unwrap().into_parts().0, &hosts).is_ok()
    }

    #[test]
    fn no_page_of_the_web_asks() {
        for host in ["127.0.0.1:9870", "localhost:9870", "LOCALHOST", "[::1]:9870", "[::1]", ""] {
            assert!(may_ask("PUT", &[("host", host)], &[]), "{host}");
        }
        assert!(may_ask("GET", &[("host", "localhost:9870"), ("sec-fetch-site", "none")], &[]));
        assert!(!may_ask("POST", &[("host", "localhost:9870"), ("sec-fetch-site", "none")], &[]));
        assert!(!may_ask("POST", &[("host", "localhost:9870"), ("sec-fetch-site", "cross-site")], &[]));
        assert!(!may_ask("POST", &[("host", "127.0.0.1:9870"), ("origin", "https://evil.example")], &[]));
        assert!(!may_ask("GET", &[("host", "evil.example:9870")], &[]));
        for host in ["node-1.example:9870", "NODE-1.example"] {
            assert!(may_ask("GET", &[("host", host)], &["node-1.example"]), "{host}");
            assert!(!may_ask("GET", &[("host", host)], &["node-1"]), "{host}");
        }
    }
}
