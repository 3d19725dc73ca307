//! Options whose values are not shown: passwords, URLs with passwords in them, headers, which say who asks, and keys with their certificates.

/// What stands in the place of a password.
const HIDDEN: &str = "******";

/// What is shown of an option's value, if it holds a secret.
pub fn hidden(option: &str, value: &str) -> Option<String> {
    let is_secret =
        |last: &str| ["password", "headers", "user-info"].iter().any(|secret| last.eq_ignore_ascii_case(secret));
    if option.rsplit('.').next().is_some_and(is_secret) || is_certificate(option) {
        return Some(HIDDEN.to_owned());
    }
    let shown = without_password(value);
    (shown != value).then_some(shown)
}

/// Whether it is a private key, or a certificate, which changes together with it.
fn is_certificate(option: &str) -> bool {
    option.contains(".ssl.keystore.") || option.contains(".ssl.truststore.")
}

/// Whether two values of an option differ in nothing but a secret. They do not where it is not clear in a URL what is secret.
pub(crate) fn are_same_but_for_secrets(option: &str, value: &str, other: &str) -> bool {
    let is_clear = |value: &str| !value.contains("://") || !value.starts_with("http") && value.matches('@').count() < 2;
    let shown = |value: &str| hidden(option, value).unwrap_or_else(|| value.to_owned());
    value == other || is_clear(value) && is_clear(other) && shown(value) == shown(other)
}

/// A URL as it may be shown: `postgresql://ann:secret@host/shop?password=secret`.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().ends_with("password") => format!("{name}={HIDDEN}"),
        _ => parameter.to_owned(),
    };
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        // Of a webhook all behind the host may be what lets in.
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let is_host_alone = rest.trim_end_matches('/') == host;
        return if is_host_alone { url.to_owned() } else { format!("{scheme}://{host}/{HIDDEN}") };
    }
    let rest = rest.split('&').map(parameter).collect::<Vec<_>>().join("&");
    // A password may hold any letter, so it ends at the last '@'.
    let user = rest.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host)));
    match user {
        Some((user, host)) => format!("{scheme}://{user}:{HIDDEN}@{host}"),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown_and_all_else_is() {
        for (option, value, shown) in [
            ("password", "secret", Some("******")),
            ("properties.sasl.password", "", Some("******")),
            ("headers", "Authorization: Bearer x", Some("******")),
            ("properties.ssl.keystore.key", "-----BEGIN", Some("******")),
            ("avro-confluent.basic-auth.user-info", "ann:secret", Some("******")),
            ("url", "postgresql://ann:se@cr:et@h:5432/shop", Some("postgresql://ann:******@h:5432/shop")),
            ("url", "postgresql://ann:se?cret@h/shop", Some("postgresql://ann:******@h/shop")),
            (
                "url",
                "postgresql://h:1/shop?user=ann&password=se@t&a=b",
                Some("postgresql://h:1/shop?user=ann&password=******&a=b"),
            ),
            ("url", "postgresql://h:1/shop?password=secret", Some("postgresql://h:1/shop?password=******")),
            ("url", "postgresql://ann@h/shop?sslmode=require", None),
            ("url", "https://hooks.example/services/T0/B0/x?token=y", Some("https://hooks.example/******")),
            ("url", "http://ann:secret@h:80/", Some("http://h:80/******")),
            ("endpoint", "http://127.0.0.1:9001/", None),
            ("topic", "password", None),
            ("path", "/tmp/a:b@c", None),
        ] {
            assert_eq!(hidden(option, value).as_deref(), shown, "{option} = {value}");
        }
    }
}
