//! The clock doubt, an object beside the owner marker. It contains the expected time at which a clock
//! was found too far ahead. After a restart, later event times in the log do not prove the time.

use bytes::Bytes;
use palimpsest_core::ids::Timestamp;

use super::error::BlobError;
use super::store::Blobs;

/// Project names cannot begin with an underscore.
const PATH: &str = "_palimpsest/clock.txt";

impl Blobs {
    /// Returns the time after which event times prove nothing, or `None` without a doubt. An unreadable
    /// object puts all event times in doubt.
    pub async fn clock_doubt(&self) -> Result<Option<Timestamp>, BlobError> {
        let bytes = match self.get(PATH).await {
            Ok(bytes) => bytes,
            Err(BlobError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let millis = str::from_utf8(&bytes).ok();
        let millis = millis.and_then(|text| text.trim().parse().ok());
        // An unreadable doubt must not count as trust, so it covers all times.
        Ok(Some(Timestamp::from_millis(millis.unwrap_or_default())))
    }

    /// Puts all event times after a time in doubt, until [`Self::trust_clock`].
    pub async fn doubt_clock(&self, after: Timestamp) -> Result<(), BlobError> {
        self.verify().await?;
        let text = format!("{}\n", after.as_millis());
        self.overwrite(PATH, Bytes::from(text)).await
    }

    /// Ends the doubt.
    pub async fn trust_clock(&self) -> Result<(), BlobError> {
        self.verify().await?;
        self.delete(PATH).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_clock_doubt_lasts_until_the_clock_is_trusted() {
        let blobs = Blobs::in_memory();
        assert_eq!(blobs.clock_doubt().await.unwrap(), None);
        let time = Timestamp::from_millis(1_700_000_000_123);
        blobs.doubt_clock(time).await.unwrap();
        assert_eq!(blobs.clock_doubt().await.unwrap(), Some(time));
        blobs.trust_clock().await.unwrap();
        assert_eq!(blobs.clock_doubt().await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_unreadable_clock_doubt_applies_to_all_times() {
        let blobs = Blobs::in_memory();
        blobs
            .overwrite(PATH, Bytes::from_static(b"soon"))
            .await
            .unwrap();
        let doubt = blobs.clock_doubt().await.unwrap();
        assert_eq!(doubt, Some(Timestamp::from_millis(0)));
    }
}
