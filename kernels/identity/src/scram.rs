//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows a password without saying it. A pure exchange of four
//! messages. Over TLS the proof can be bound to the server's certificate, so that nobody in between can pass it on.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use crate::Verifier;

/// The mechanism without channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The mechanism whose proof is bound to the connection's certificate.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// What a first message with channel binding begins with.
const BOUND: &str = "p=tls-server-end-point,,";

/// What came is no message of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed SCRAM message: {0}")]
pub struct Malformed(&'static str);

/// The mechanisms that a connection offers, best first: `end_point` is its certificate's hash, if it has one.
#[must_use]
pub fn mechanisms(end_point: Option<&[u8]>) -> Vec<&'static str> {
    match end_point {
        Some(_) => vec![MECHANISM_PLUS, MECHANISM],
        None => vec![MECHANISM],
    }
}

/// An exchange after its first two messages.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// What the client has to repeat of channel binding.
    binding: Vec<u8>,
    nonce: String,
    /// What both have signed so far.
    said: String,
}

impl Exchange {
    /// Hears the mechanism and the client's first message. The answer has what the client needs for its proof; `nonce` is
    /// ours, `end_point` the hash of the connection's certificate.
    ///
    /// # Errors
    /// It is no such message, or a mechanism that was not offered.
    pub fn begin(
        verifier: Verifier,
        mechanism: &str,
        first: &str,
        nonce: &str,
        end_point: Option<&[u8]>,
    ) -> Result<(Self, String), Malformed> {
        let wrong = || Malformed("expected `n,,n=,r=..`, came another first message");
        let (header, bare, bound) = match (mechanism, end_point) {
            (MECHANISM_PLUS, Some(end_point)) => {
                let wrong = Malformed("expected the channel binding tls-server-end-point, came another");
                (BOUND, first.strip_prefix(BOUND).ok_or(wrong)?, end_point)
            }
            (MECHANISM, _) => match (first.strip_prefix("n,,"), first.strip_prefix("y,,")) {
                (Some(bare), _) => ("n,,", bare, &[][..]),
                // It could bind, and believes that we cannot: somebody in between has changed what was offered.
                (_, Some(_)) if end_point.is_some() => {
                    return Err(Malformed("the client believes that there is no channel binding, which was offered"));
                }
                (_, Some(bare)) => ("y,,", bare, &[][..]),
                _ => return Err(wrong()),
            },
            _ => return Err(Malformed("expected a mechanism that was offered")),
        };
        // The user is who the startup message names, whatever is said here.
        let theirs = bare.strip_prefix("n=").and_then(|rest| rest.split_once(",r=")).ok_or_else(wrong)?.1;
        if theirs.is_empty() || theirs.contains(',') {
            return Err(Malformed("expected a nonce and nothing after it"));
        }
        let nonce = format!("{theirs}{nonce}");
        let answer = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let said = format!("{bare},{answer}");
        let binding = [header.as_bytes(), bound].concat();
        Ok((Self { verifier, binding, nonce, said }, answer))
    }

    /// Hears the client's proof. The answer proves that we know the password, too; `None` if the client does not.
    ///
    /// # Errors
    /// It is no such message.
    pub fn end(&self, last: &str) -> Result<Option<String>, Malformed> {
        let wrong = || Malformed("expected `c=..,r=..,p=..`, came another last message");
        let (unproven, proof) = last.rsplit_once(",p=").ok_or_else(wrong)?;
        let (channel, nonce) = unproven.strip_prefix("c=").and_then(|rest| rest.split_once(",r=")).ok_or_else(wrong)?;
        if BASE64.decode(channel).ok().as_ref() != Some(&self.binding) || nonce != self.nonce {
            return Err(Malformed("expected the channel binding and the nonce of before, came others"));
        }
        let proof = BASE64.decode(proof).map_err(|_| wrong())?;
        let said = format!("{},{unproven}", self.said);
        let answer = self.verifier.check(said.as_bytes(), &proof);
        Ok(answer.map(|signature| format!("v={}", BASE64.encode(signature))))
    }
}

/// A nonce that nobody can guess.
///
/// # Errors
/// The operating system has no randomness.
pub fn nonce() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}

/// The mechanism and the first message in the body of PostgreSQL's `SASLInitialResponse`.
///
/// # Errors
/// It is no such body.
pub fn initial_response(body: &[u8]) -> Result<(&str, &str), Malformed> {
    let wrong = Malformed("expected a mechanism, a length, and the first message");
    let end = body.iter().position(|byte| *byte == 0).ok_or(wrong)?;
    let first = body.get(end + 5..).ok_or(wrong)?;
    if body[end + 1..end + 5] != (first.len() as u32).to_be_bytes() {
        return Err(wrong);
    }
    let text = |bytes| str::from_utf8(bytes).map_err(|_| wrong);
    Ok((text(&body[..end])?, text(first)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    fn rfc(password: &str) -> (Exchange, String) {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let (first, nonce) = ("n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
        Exchange::begin(Verifier::of_password(password, salt), MECHANISM, first, nonce, None).unwrap()
    }

    const PROOF: &str =
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    #[test]
    fn the_exchange_of_the_standard_succeeds() {
        let (exchange, answer) = rfc("pencil");
        assert_eq!(answer, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!(exchange.end(PROOF).unwrap().as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn another_password_proves_nothing() {
        assert_eq!(rfc("pencils").0.end(PROOF).unwrap(), None);
        let short = PROOF.replace("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "dHzb");
        assert_eq!(rfc("pencil").0.end(&short).unwrap(), None);
    }

    fn begin(mechanism: &str, first: &str, end_point: Option<&[u8]>) -> Result<Exchange, Malformed> {
        let verifier = Verifier::of_password("x", vec![1]);
        Exchange::begin(verifier, mechanism, first, "n", end_point).map(|(exchange, _)| exchange)
    }

    #[test]
    fn what_is_no_message_of_the_exchange_is_refused() {
        for first in ["", "n,,", "p=tls-unique,,n=,r=a", "n,,n=,r=", "n,,n=,r=a,b=c", "n,a=me,n=,r=a", "n,,r=a"] {
            assert!(begin(MECHANISM, first, None).is_err(), "{first}");
        }
        let (exchange, _) = rfc("pencil");
        for last in ["", "c=biws,r=other,p=AA==", &PROOF.replace("biws", "eSws"), &PROOF.replace("p=dHzb", "p=***")] {
            assert!(exchange.end(last).is_err(), "{last}");
        }
    }

    #[test]
    fn a_proof_is_bound_to_the_certificate_that_the_client_saw() {
        let (ours, others) = (&b"our certificate"[..], b"another certificate");
        let exchange = begin(MECHANISM_PLUS, "p=tls-server-end-point,,n=,r=a", Some(ours)).unwrap();
        let last = |certificate: &[u8]| {
            let binding = BASE64.encode([BOUND.as_bytes(), certificate].concat());
            exchange.end(&format!("c={binding},r=an,p={}", BASE64.encode([0; 32])))
        };
        assert_eq!(last(ours), Ok(None), "bound as it should be, though nothing is proved");
        assert!(last(others).is_err());
    }

    #[test]
    fn who_was_told_that_there_is_no_binding_is_refused_where_there_is() {
        assert!(begin(MECHANISM, "y,,n=,r=a", Some(b"certificate")).is_err());
        assert!(begin(MECHANISM, "y,,n=,r=a", None).is_ok());
        assert!(begin(MECHANISM, "n,,n=,r=a", Some(b"certificate")).is_ok());
        assert!(begin(MECHANISM_PLUS, "p=tls-server-end-point,,n=,r=a", None).is_err());
    }

    #[test]
    fn an_initial_response_has_a_mechanism_and_a_message() {
        assert_eq!(initial_response(b"SCRAM-SHA-256\0\0\0\0\x03n,,"), Ok((MECHANISM, "n,,")));
        for wrong in [&b""[..], b"SCRAM", b"SCRAM\0\0\0\0", b"SCRAM\0\0\0\0\x04n,,", b"\xff\0\0\0\0\x01n"] {
            assert!(initial_response(wrong).is_err());
        }
    }
}
