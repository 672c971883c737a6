//! Where a key comes from. It is read for every call, so that a rotated one is used at once.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::Error;

/// Where a key comes from.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// The key itself.
    Value(SecretString),
    /// The name of an environment variable.
    Env(String),
    /// A file, as Kubernetes mounts them. White space around the key is taken off.
    File(PathBuf),
}

/// A key is a line, so a file that is larger than this is not one.
const MAX_KEY_BYTES: usize = 64 * 1024;

impl SecretSource {
    /// The key itself, kept out of every `Debug` output.
    pub fn value(key: impl Into<String>) -> Self {
        Self::Value(SecretString::from(key.into()))
    }

    /// The key as it is now. An error says where it was looked for, and never what was found.
    pub async fn read(&self) -> Result<SecretString, Error> {
        let key = match self {
            Self::Value(key) => key.clone(),
            Self::Env(name) => match std::env::var(name) {
                Ok(key) => SecretString::from(key),
                Err(_) => return Err(Error::auth(format!("the variable {name} is not set"))),
            },
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(key) if key.len() <= MAX_KEY_BYTES => SecretString::from(key.trim()),
                Ok(_) => {
                    return Err(Error::auth(format!(
                        "{} is no key: too large",
                        path.display()
                    )));
                }
                Err(error) => {
                    let detail = format!("{} cannot be read: {}", path.display(), error.kind());
                    return Err(Error::auth(detail));
                }
            },
        };
        if key.expose_secret().trim().is_empty() {
            return Err(Error::auth("the key is empty"));
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::SecretSource;

    #[tokio::test]
    async fn read_where_it_is_now() {
        let path = std::env::temp_dir().join(format!("palimpsest-key-{}", std::process::id()));
        let source = SecretSource::File(path.clone());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose_secret(), "one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose_secret(), "two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(source.read().await.unwrap_err().name(), "auth");
    }

    #[tokio::test]
    async fn a_missing_one_is_named_and_a_present_one_is_not_shown() {
        let missing = SecretSource::Env("PALIMPSEST_TEST_NO_SUCH_KEY".to_owned());
        let error = missing.read().await.unwrap_err().to_string();
        assert!(error.contains("PALIMPSEST_TEST_NO_SUCH_KEY"), "{error}");
        assert!(SecretSource::value(" ").read().await.is_err());
        assert!(!format!("{:?}", SecretSource::value("abc123")).contains("abc123"));
    }
}
