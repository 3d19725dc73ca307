//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows a password without saying it. A pure exchange of four
//! messages.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use savanna_tenants::{
    SqlError,
    error::{Result, state},
    role::Verifier,
};

/// The mechanism's name.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// An exchange after its first two messages.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    /// What the client said of channel binding, which there is none of.
    header: String,
    nonce: String,
    /// What both have signed so far.
    said: String,
}

impl Exchange {
    /// Hears the client's first message. The answer has what the client needs for its proof; `nonce` is ours.
    ///
    /// # Errors
    /// 08P01 if it is no such message.
    pub(crate) fn begin(verifier: Verifier, first: &str, nonce: &str) -> Result<(Self, String)> {
        let wrong = || malformed("expected `n,,n=,r=..`, came another first message");
        let (header, bare) = ["n,,", "y,,"]
            .iter()
            .find_map(|header| first.strip_prefix(header).map(|bare| ((*header).to_owned(), bare)))
            .ok_or_else(wrong)?;
        // The user is who the startup message names, whatever is said here.
        let theirs = bare.strip_prefix("n=").and_then(|rest| rest.split_once(",r=")).ok_or_else(wrong)?.1;
        if theirs.is_empty() || theirs.contains(',') {
            return Err(malformed("expected a nonce and nothing after it"));
        }
        let nonce = format!("{theirs}{nonce}");
        let answer = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let said = format!("{bare},{answer}");
        Ok((Self { verifier, header, nonce, said }, answer))
    }

    /// Hears the client's proof. The answer proves that we know the password, too; `None` if the client does not.
    ///
    /// # Errors
    /// 08P01 if it is no such message.
    pub(crate) fn end(&self, last: &str) -> Result<Option<String>> {
        let wrong = || malformed("expected `c=..,r=..,p=..`, came another last message");
        let (unproven, proof) = last.rsplit_once(",p=").ok_or_else(wrong)?;
        let (channel, nonce) = unproven.strip_prefix("c=").and_then(|rest| rest.split_once(",r=")).ok_or_else(wrong)?;
        if BASE64.decode(channel).ok().as_deref() != Some(self.header.as_bytes()) || nonce != self.nonce {
            return Err(malformed("expected the channel binding and the nonce of before, came others"));
        }
        let proof = BASE64.decode(proof).map_err(|_| wrong())?;
        let said = format!("{},{unproven}", self.said);
        let answer = self.verifier.check(said.as_bytes(), &proof);
        Ok(answer.map(|signature| format!("v={}", BASE64.encode(signature))))
    }
}

fn malformed(what: &str) -> SqlError {
    SqlError::new(state::PROTOCOL_VIOLATION, format!("malformed SCRAM message: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    fn rfc(password: &str) -> (Exchange, String) {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let first = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        Exchange::begin(Verifier::of_password(password, salt), first, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").unwrap()
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

    #[test]
    fn what_is_no_message_of_the_exchange_is_refused() {
        let begin = |first| Exchange::begin(Verifier::of_password("x", vec![1]), first, "n").map(|_| ());
        for first in ["", "n,,", "p=tls-unique,,n=,r=a", "n,,n=,r=", "n,,n=,r=a,b=c", "n,a=me,n=,r=a", "n,,r=a"] {
            assert_eq!(begin(first).unwrap_err().state, state::PROTOCOL_VIOLATION, "{first}");
        }
        let (exchange, _) = rfc("pencil");
        for last in ["", "c=biws,r=other,p=AA==", &PROOF.replace("biws", "eSws"), &PROOF.replace("p=dHzb", "p=***")] {
            assert_eq!(exchange.end(last).unwrap_err().state, state::PROTOCOL_VIOLATION, "{last}");
        }
    }
}
