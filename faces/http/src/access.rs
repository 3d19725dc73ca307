//! Who may ask: the host and the origin that a request names, and the token or the password that it carries.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use savanna_identity::{Token, Users};

use crate::Problem;

/// Where a browser says from which kind of site a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What every request carries except those for health: the token, or the name and the password of a user. Where there is
/// neither, nobody is asked.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The token, as `Authorization: Bearer`.
    pub token: Option<Token>,
    /// The users, as `Authorization: Basic`.
    pub users: Users,
}

impl Credentials {
    /// Whether nobody is asked.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.token.is_none() && self.users.is_empty()
    }

    /// Whether a request carries them.
    fn are_in(&self, headers: &HeaderMap) -> bool {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (sent.next(), sent.next()) else { return false };
        let value = value.as_bytes();
        let after = |scheme: &[u8]| {
            let (first, sent) = value.split_at_checked(scheme.len())?;
            first.eq_ignore_ascii_case(scheme).then(|| sent.trim_ascii())
        };
        match (after(b"Bearer "), after(b"Basic ")) {
            (Some(sent), _) => self.token.as_ref().is_some_and(|token| token.is(sent)),
            (None, Some(sent)) => self.admit(sent) == Some(true),
            (None, None) => false,
        }
    }

    /// Whether a user is let in with what `Basic` carries; `None` if it carries something else.
    fn admit(&self, sent: &[u8]) -> Option<bool> {
        let pair = BASE64.decode(sent).ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        let name = str::from_utf8(&pair[..colon]).ok()?;
        Some(self.users.admit(name, &pair[colon + 1..]))
    }

    /// What a client is told that did not send them.
    fn problem(&self) -> Problem {
        let bearer = "the header `Authorization: Bearer TOKEN` with the token of the node's auth.token";
        let basic = "the header `Authorization: Basic ..` with a name and a password of the node's auth.users";
        let expected = match (&self.token, self.users.is_empty()) {
            (Some(_), true) => bearer.to_owned(),
            (None, _) => basic.to_owned(),
            (Some(_), false) => format!("{bearer}, or {basic}"),
        };
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "The request does not say who sends it",
            format!("expected {expected}; it is missing or wrong"),
        )
    }

    /// The ways to send them, for who did not.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = HeaderValue> {
        let bearer = self.token.is_some().then_some(r#"Bearer realm="savanna""#);
        let basic = (!self.users.is_empty()).then_some(r#"Basic realm="savanna", charset="UTF-8""#);
        bearer.into_iter().chain(basic).map(HeaderValue::from_static)
    }
}

/// What requests have to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Whether to answer only requests that name the loopback as their host.
    pub(crate) loopback_only: bool,
    /// Who may ask.
    pub(crate) credentials: Credentials,
}

impl Access {
    /// Refuses who may not ask. `is_health` is a request that anybody may make.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap, is_health: bool) -> Result<(), Box<Problem>> {
        if self.loopback_only && !names_loopback(headers) {
            return Err(Box::new(Problem::new(
                StatusCode::FORBIDDEN,
                "host",
                "The host is not this one",
                "expected a Host of localhost or 127.0.0.1, because this node listens on the loopback only",
            )));
        }
        if is_of_foreign_page(method, headers) {
            return Err(Box::new(Problem::new(
                StatusCode::FORBIDDEN,
                "origin",
                "The request comes from a page of another site",
                "expected a request from a program or from a page of this node, but its Origin or Sec-Fetch-Site names another site",
            )));
        }
        if is_health || self.credentials.are_none() || self.credentials.are_in(headers) {
            return Ok(());
        }
        Err(Box::new(self.credentials.problem()))
    }
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
