//! Sources of API keys. The source is read for every call, so that a rotated key takes effect
//! immediately.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::Error;

/// The source of an API key.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// The key itself.
    Value(SecretString),
    /// The name of an environment variable that contains the key.
    Env(String),
    /// The path of a file, such as a mounted Kubernetes Secret. White space around the key is
    /// removed.
    File(PathBuf),
}

/// A secret cannot be read. The text states the source and never the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(String);

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        Self::auth(error.0)
    }
}

/// The maximum size of a key file in bytes. A larger file is not a key.
const MAX_KEY_BYTES: usize = 64 * 1024;

impl SecretSource {
    /// Creates a source from a key. The key never appears in `Debug` output.
    pub fn value(key: impl Into<String>) -> Self {
        Self::Value(SecretString::from(key.into()))
    }

    /// Reads the current key.
    pub async fn read(&self) -> Result<SecretString, SecretError> {
        let key = match self {
            Self::Value(key) => key.clone(),
            Self::Env(name) => match std::env::var(name) {
                Ok(key) => SecretString::from(key),
                Err(_) => return Err(SecretError(format!("the variable {name} is not set"))),
            },
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(key) if key.len() <= MAX_KEY_BYTES => SecretString::from(key.trim()),
                Ok(_) => {
                    return Err(SecretError(format!(
                        "{} is no key: too large",
                        path.display()
                    )));
                }
                Err(error) => {
                    let detail = format!("{} cannot be read: {}", path.display(), error.kind());
                    return Err(SecretError(detail));
                }
            },
        };
        // An empty key would cause a misleading rejection by the provider.
        if key.expose_secret().trim().is_empty() {
            return Err(SecretError(match self {
                Self::Value(_) => "the key is empty".to_owned(),
                Self::Env(name) => format!("the variable {name} is empty"),
                Self::File(path) => format!("{} is empty", path.display()),
            }));
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{Error, SecretSource};

    #[tokio::test]
    async fn a_secret_is_read_at_each_use() {
        let path = std::env::temp_dir().join(format!("palimpsest-key-{}", std::process::id()));
        let source = SecretSource::File(path.clone());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose_secret(), "one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(source.read().await.unwrap().expose_secret(), "two");
        std::fs::remove_file(&path).unwrap();
        let missing = source.read().await.unwrap_err();
        // The source may also be the password of a database, so only the conversion mentions a provider.
        let expected = format!("{} cannot be read: entity not found", path.display());
        assert_eq!(missing.to_string(), expected);
        assert_eq!(Error::from(missing).name(), "auth");
    }

    #[tokio::test]
    async fn a_missing_secret_is_named_and_a_present_one_is_hidden() {
        let missing = SecretSource::Env("PALIMPSEST_TEST_NO_SUCH_KEY".to_owned());
        let error = missing.read().await.unwrap_err().to_string();
        assert!(error.contains("PALIMPSEST_TEST_NO_SUCH_KEY"), "{error}");
        assert!(SecretSource::value(" ").read().await.is_err());
        assert!(!format!("{:?}", SecretSource::value("abc123")).contains("abc123"));
    }
}
