//! How a node knows etcd, and etcd the node: certificates out of files, a user out of the settings, and his password out of the environment.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use savanna_ownership::etcd::{EtcdLogin, EtcdTls, EtcdTlsError};

use super::join::{EtcdPlace, is_here};
use crate::config::NodeConfig;

/// The variable with the password of `cluster.etcd_user`. Neither a setting nor a flag, which others could see.
pub(crate) const PASSWORD: &str = "SAVANNA_ETCD_PASSWORD";

/// Why etcd cannot be asked as the settings say.
#[derive(Debug, thiserror::Error)]
pub enum EtcdAccessError {
    /// Nobody said who may sign certificates of etcd.
    #[error(
        "etcd is to be asked over encrypted connections (etcds://): expected cluster.etcd_ca, a PEM file with the authority that has signed its certificates, came none"
    )]
    NoAuthority,
    /// There are certificates, and nothing is encrypted.
    #[error(
        "expected --join etcds://.., as cluster.etcd_ca or cluster.etcd_cert is set, came etcd://, which asks etcd without encryption; join etcds://, or leave the settings out"
    )]
    NotEncrypted,
    /// A file cannot be read.
    #[error("{path}: reading {setting} failed: {source}")]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others can read the key.
    #[error(
        "{path}: expected a file that only its owner can read, as it holds the key of cluster.etcd_cert; `chmod 600` it"
    )]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// What the files hold cannot be used.
    #[error(
        "etcd cannot be asked over encrypted connections: {0}; look at cluster.etcd_ca, cluster.etcd_cert and cluster.etcd_key"
    )]
    Tls(#[from] EtcdTlsError),
    /// A user without a password.
    #[error("expected the password of cluster.etcd_user in the environment variable {PASSWORD}, came none; set it")]
    NoPassword,
    /// A password without a user.
    #[error("expected cluster.etcd_user, whose password {PASSWORD} is, came none; set it, or unset the variable")]
    NoUser,
    /// The password would be read on the way.
    #[error(
        "expected --join etcds://.., as a password for etcd is only sent over encrypted connections, or to this machine, came etcd://"
    )]
    InTheClear,
}

/// What a node shows etcd, and expects of it.
#[derive(Clone, Debug, Default)]
pub(super) struct EtcdAccess {
    pub(super) tls: Option<EtcdTls>,
    pub(super) login: Option<EtcdLogin>,
}

impl EtcdAccess {
    /// Reads the files, and takes the password.
    ///
    /// # Errors
    /// [`EtcdAccessError`].
    pub(super) fn of(
        place: &EtcdPlace,
        config: &NodeConfig,
        password: Option<String>,
    ) -> Result<Self, EtcdAccessError> {
        let login = match (&config.cluster_etcd_user, password) {
            (None, None) => None,
            (None, Some(_)) => return Err(EtcdAccessError::NoUser),
            (Some(_), None) => return Err(EtcdAccessError::NoPassword),
            (Some(_), Some(_)) if !place.is_encrypted && !is_here(&place.members) => {
                return Err(EtcdAccessError::InTheClear);
            }
            (Some(user), Some(password)) => Some(EtcdLogin { user: user.clone(), password }),
        };
        let tls = match (place.is_encrypted, &config.cluster_etcd_ca) {
            (true, Some(authorities)) => Some(read(authorities, config)?),
            (true, None) => return Err(EtcdAccessError::NoAuthority),
            (false, None) if config.cluster_etcd_tls.is_none() => None,
            (false, _) => return Err(EtcdAccessError::NotEncrypted),
        };
        Ok(Self { tls, login })
    }
}

fn read(authorities: &Path, config: &NodeConfig) -> Result<EtcdTls, EtcdAccessError> {
    let read = |setting, path: &Path| {
        fs::read(path).map_err(|source| EtcdAccessError::File { setting, path: path.to_owned(), source })
    };
    let shown = config.cluster_etcd_tls.as_ref().map(|files| {
        let (certificates, key) =
            (read("cluster.etcd_cert", &files.certificates)?, read("cluster.etcd_key", &files.key)?);
        let mode = fs::metadata(&files.key).map(|metadata| metadata.permissions().mode());
        let failed = |source| EtcdAccessError::File { setting: "cluster.etcd_key", path: files.key.clone(), source };
        match mode.map_err(failed)? & 0o077 {
            0 => Ok((certificates, key)),
            _ => Err(EtcdAccessError::Open { path: files.key.clone() }),
        }
    });
    let shown = shown.transpose()?;
    let shown = shown.as_ref().map(|(certificates, key)| (&certificates[..], &key[..]));
    Ok(EtcdTls::of_pem(&read("cluster.etcd_ca", authorities)?, shown)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/identity/fixtures/cert.pem");
    const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/identity/fixtures/key.pem");

    fn access(
        join: &str,
        settings: &[(&'static str, &str)],
        password: Option<&str>,
    ) -> Result<EtcdAccess, EtcdAccessError> {
        let sources = settings.iter().fold(Sources::none(), |sources, (key, value)| sources.flag(key, value, "--set"));
        let config = Config::load(&sources).unwrap().node().clone();
        let crate::cluster::Join::Etcd(place) = join.parse().unwrap() else { panic!("{join}") };
        EtcdAccess::of(&place, &config, password.map(str::to_owned))
    }

    #[test]
    fn certificates_are_for_encrypted_connections_and_the_other_way_round() {
        let (ca, cert, key) =
            (("cluster.etcd_ca", CERTIFICATE), ("cluster.etcd_cert", CERTIFICATE), ("cluster.etcd_key", KEY));
        assert!(access("etcd://10.0.0.9:2379", &[], None).unwrap().tls.is_none());
        assert!(access("etcds://10.0.0.9:2379", &[ca], None).unwrap().tls.is_some());
        assert!(matches!(access("etcds://10.0.0.9:2379", &[], None), Err(EtcdAccessError::NoAuthority)));
        for settings in [&[ca][..], &[cert, key]] {
            assert!(matches!(access("etcd://10.0.0.9:2379", settings, None), Err(EtcdAccessError::NotEncrypted)));
        }
        let gone = access("etcds://a:1", &[("cluster.etcd_ca", "/nowhere")], None).unwrap_err().to_string();
        assert!(gone.starts_with("/nowhere: reading cluster.etcd_ca failed"), "{gone}");
        let unfit = access("etcds://a:1", &[("cluster.etcd_ca", KEY)], None).unwrap_err().to_string();
        assert!(unfit.contains("expected the certificates of the authorities of etcd in PEM"), "{unfit}");
    }

    #[test]
    fn the_key_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key.pem");
        fs::copy(KEY, &key).unwrap();
        let with = |mode| {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let key = ("cluster.etcd_key", key.to_str().unwrap());
            access("etcds://a:1", &[("cluster.etcd_ca", CERTIFICATE), ("cluster.etcd_cert", CERTIFICATE), key], None)
        };
        assert!(with(0o600).is_ok());
        assert!(matches!(with(0o640), Err(EtcdAccessError::Open { .. })));
    }

    #[test]
    fn a_password_has_a_user_and_is_sent_to_nobody_who_listens() {
        let user = ("cluster.etcd_user", "savanna");
        let ca = ("cluster.etcd_ca", CERTIFICATE);
        assert!(matches!(access("etcds://10.0.0.9:1", &[ca, user], None), Err(EtcdAccessError::NoPassword)));
        assert!(matches!(access("etcds://10.0.0.9:1", &[ca], Some("word")), Err(EtcdAccessError::NoUser)));
        assert!(matches!(access("etcd://10.0.0.9:1", &[user], Some("word")), Err(EtcdAccessError::InTheClear)));
        for (join, settings) in [("etcds://10.0.0.9:1", &[ca, user][..]), ("etcd://127.0.0.1:1", &[user])] {
            let access = access(join, settings, Some("a secret word")).unwrap();
            assert_eq!(access.login.as_ref().map(|login| login.user.as_str()), Some("savanna"));
            assert!(!format!("{access:?}").contains("a secret word"));
        }
    }
}
