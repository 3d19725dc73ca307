//! Who may ask: the host and the origin that a request names, and the token that it carries.

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use savanna_identity::Token;

use crate::Problem;

/// Where a browser says from which kind of site a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What requests have to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Whether to answer only requests that name the loopback as their host.
    pub(crate) loopback_only: bool,
    /// What every request carries but those for health.
    pub(crate) token: Option<Token>,
}

impl Access {
    /// Refuses who may not ask. `is_health` is a request that anybody may make.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap, is_health: bool) -> Result<(), Box<Problem>> {
        if self.loopback_only && !names_loopback(headers) {
            return Err(Box::new(Problem::new(
                StatusCode::FORBIDDEN,
                "host",
                "The host is not this one",
                "expected a Host of localhost or 127.0.0.1, because this node listens on the loopback and trusts it",
            )));
        }
        if is_of_foreign_page(method, headers) {
            return Err(Box::new(Problem::new(
                StatusCode::FORBIDDEN,
                "origin",
                "The request is of a page of another site",
                "expected a request of a program or of a page of this node, but its Origin or Sec-Fetch-Site names another site",
            )));
        }
        match &self.token {
            Some(token) if !is_health && !carries(token, headers) => Err(Box::new(Problem::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "The token is missing or wrong",
                "expected the header `Authorization: Bearer TOKEN` with the token of the node's auth.token",
            ))),
            _ => Ok(()),
        }
    }
}

fn carries(token: &Token, headers: &HeaderMap) -> bool {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (sent.next(), sent.next()) else { return false };
    value
        .as_bytes()
        .split_at_checked(7)
        .is_some_and(|(scheme, sent)| scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(sent.trim_ascii()))
}

/// Whether a browser sends it for a page of another site. Programs say nothing of where they are.
fn is_of_foreign_page(method: &Method, headers: &HeaderMap) -> bool {
    if headers.contains_key(header::ORIGIN) {
        let is_ours = || {
            let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
            let host = headers.get(header::HOST)?.to_str().ok()?;
            let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
            Some(named.eq_ignore_ascii_case(host))
        };
        return is_ours() != Some(true);
    }
    // A link that somebody follows is a GET, and its page does not see the answer.
    let is_safe = [Method::GET, Method::HEAD].contains(method);
    let is_foreign = |site: &[u8]| !matches!(site, b"same-origin" | b"none");
    !is_safe && headers.get(FETCH_SITE).is_some_and(|site| is_foreign(site.as_bytes()))
}

/// A page of a foreign site that a browser on this machine was made to resolve to the loopback sends its own name.
fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_of_the_loopback_pass() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "127.0.0.2"] {
            assert!(names_loopback(&headers(&[("host", host)])), "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "10.0.0.1:8080", "localhost.evil.example", ""] {
            assert!(!names_loopback(&headers(&[("host", host)])), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_may_not_ask() {
        fn foreign(method: &Method, all: &[(&'static str, &str)]) -> bool {
            is_of_foreign_page(method, &headers(all))
        }
        let host = ("host", "localhost:8080");
        assert!(!foreign(&Method::POST, &[host]), "a program");
        assert!(!foreign(
            &Method::POST,
            &[host, ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]
        ));
        assert!(!foreign(&Method::GET, &[host, ("sec-fetch-site", "cross-site")]), "a link");
        for origin in
            ["http://evil.example", "null", "http://localhost:9090", "http://127.0.0.1:8080", "localhost:8080", ""]
        {
            assert!(foreign(&Method::POST, &[host, ("origin", origin)]), "{origin}");
            assert!(foreign(&Method::GET, &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "something"] {
            assert!(foreign(&Method::DELETE, &[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
