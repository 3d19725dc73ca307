//! AWS' signature of requests, version 4: what clients make and servers check.

use chrono::{DateTime, NaiveDateTime};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// How a time is written.
const TIME: &str = "%Y%m%dT%H%M%SZ";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of this kind has any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// What a signature says beside itself.
#[derive(Clone, Copy, Debug)]
pub struct Signing<'a> {
    /// `20261128T041322Z`.
    pub time: &'a str,
    /// The region.
    pub region: &'a str,
    /// `GET` and the like.
    pub method: &'a str,
    /// The path as it is sent.
    pub path: &'a str,
    /// What follows `?`, as it is sent.
    pub query: &'a str,
    /// Names of headers in lower case, with their values, in the order of the names.
    pub headers: &'a [(String, String)],
    /// The hash of the body in hexadecimal digits, or what stands for it.
    pub payload: &'a str,
}

/// A request's signature with a secret.
#[must_use]
pub fn sign(secret: &str, service: &str, signing: &Signing<'_>) -> String {
    let Signing { time, region, method, path, query, headers, payload } = signing;
    let date = time.get(..8).unwrap_or_default();
    // Every service but S3 encodes the path once more.
    let path: Vec<String> = path.split('/').map(encoded).collect();
    let mut query: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", trimmed(value))).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let request = [method, path.join("/").as_str(), &query.join("&"), &lines, &names.join(";"), payload].join("\n");
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
    let key = [date, region, service, "aws4_request"]
        .iter()
        .fold(format!("AWS4{secret}").into_bytes(), |key, part| keyed(&key, part));
    hex(&keyed(&key, &text))
}

/// A value with single spaces.
fn trimmed(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A part of a path, as the signature has it.
fn encoded(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    part.bytes().map(one).collect()
}

/// The hash of a body, as a signature has it.
#[must_use]
pub fn body_hash(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

/// Seconds since 1970 as a signature has them: `20261128T041322Z`.
#[must_use]
pub fn time_of(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.unwrap_or(DateTime::UNIX_EPOCH).format(TIME).to_string()
}

/// `20261128T041322Z` in seconds since 1970; nothing if it is no such time.
#[must_use]
pub fn seconds_of(time: &str) -> Option<u64> {
    // Signs and blanks that the parser allows are in no time of this form.
    let is_plain =
        time.len() == 16 && time.bytes().enumerate().all(|(at, byte)| matches!(at, 8 | 15) || byte.is_ascii_digit());
    let parsed = NaiveDateTime::parse_from_str(time, TIME).ok().filter(|_| is_plain)?;
    u64::try_from(parsed.and_utc().timestamp()).ok()
}

/// A key that signs requests. Not shown: it has a secret.
#[derive(Clone)]
pub struct SigningKey {
    /// Its name.
    pub id: String,
    /// The secret.
    pub secret: String,
    /// What comes with a secret that is not for long.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The headers that sign a request. `signing` has its time, and those of its headers that are signed, in the order of their names; without `host` among
    /// them no service takes it.
    #[must_use]
    pub fn headers(&self, service: &str, signing: &Signing<'_>) -> Vec<(&'static str, String)> {
        let Signing { time, region, headers, .. } = signing;
        let mut headers = headers.to_vec();
        let mut told = vec![("x-amz-date", (*time).to_owned())];
        told.extend(self.session_token.iter().map(|token| ("x-amz-security-token", token.clone())));
        headers.extend(told.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let signature = sign(&self.secret, service, &Signing { headers: &headers, ..*signing });
        let (id, date) = (&self.id, time.get(..8).unwrap_or_default());
        let scope = format!("{id}/{date}/{region}/{service}/aws4_request");
        told.push((
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"),
        ));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS' documentation ("Signature Version 4 signing process", IAM ListUsers).
    #[test]
    fn the_signature_is_that_of_the_documentation() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            header("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            header("host", "iam.amazonaws.com"),
            header("x-amz-date", "20150830T123600Z"),
        ];
        let signing = Signing {
            time: "20150830T123600Z",
            region: "us-east-1",
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &headers,
            payload: &hex(&Sha256::digest(b"")),
        };
        let signature = sign("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "iam", &signing);
        assert_eq!(signature, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
    }

    #[test]
    fn a_time_is_in_seconds() {
        assert_eq!(seconds_of("19700101T000000Z"), Some(0));
        assert_eq!(seconds_of("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(time_of(1_440_938_160), "20150830T123600Z");
        for text in [
            "",
            "20150830",
            "2015083xT123600Z",
            "20151330T123600Z",
            "ZT",
            "é0150830T12360Z",
            "+0150830T123600Z",
            "19691231T235959Z",
        ] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_signs_its_time_and_its_token_with_the_rest() {
        let key = SigningKey { id: "k".into(), secret: "s".into(), session_token: Some("t".into()) };
        let signing = Signing {
            time: "20150830T123600Z",
            region: "r",
            method: "POST",
            path: "/",
            query: "",
            headers: &[("host".to_owned(), "h".to_owned())],
            payload: &body_hash(b""),
        };
        let headers = key.headers("lambda", &signing);
        let told = &headers.iter().find(|(name, _)| *name == "authorization").unwrap().1;
        let begin = "AWS4-HMAC-SHA256 Credential=k/20150830/r/lambda/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=";
        assert!(told.starts_with(begin), "{told}");
        assert_eq!(
            headers.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["x-amz-date", "x-amz-security-token", "authorization"]
        );
        assert!(!format!("{key:?}").contains("secret"), "{key:?}");
    }
}
