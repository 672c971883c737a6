//! The token of a delegated compaction. It identifies the compaction in the log and the format of its request, so a
//! restarted server can continue.
//!
//! A forged token gives no additional access: a caller that can use one may change the session anyway.

use palimpsest_core::ids::{CompactionKey, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_core::session::RunningCompaction;
use palimpsest_core::view::Provider;

/// The first byte of a token. A new layout gets a new version.
const VERSION: u8 = 1;
// The fields in the order of `write`: version, form, provider, key, attempt, window, output, digest.
const BYTES: usize = 1 + 1 + 1 + 4 + 4 + 8 + 4 + 16;

/// The form of returned messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageForm {
    /// The provider's JSON.
    #[default]
    Json,
    /// Typed messages.
    Typed,
}

/// The format and limits of a delegated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegationOptions {
    /// The message form of the request.
    pub form: MessageForm,
    /// The provider whose JSON format is used.
    pub provider: Provider,
    /// The maximum size of the request and its answer in tokens.
    pub window_tokens: u64,
    /// The maximum output of the model in tokens.
    pub max_output_tokens: u32,
}

/// The decoded content of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DelegationToken {
    /// The key of the compaction.
    pub(super) key: CompactionKey,
    /// The number of times the request had been shortened.
    pub(super) attempt: u32,
    /// The format and limits of the request.
    pub(super) options: DelegationOptions,
    digest: [u8; 16],
}

impl DelegationToken {
    /// Returns the token of a running compaction.
    pub(super) fn of(
        session: &SessionKey,
        running: &RunningCompaction,
        options: DelegationOptions,
    ) -> Self {
        let mut token = Self {
            key: running.key,
            attempt: running.attempt,
            options,
            digest: [0; 16],
        };
        // The digest is still zero here, so it covers all other bytes.
        let said = token.write();
        // The digest binds the token to the session and to the start of the compaction.
        let about = format!("{session} {}", running.started_at.as_millis());
        token.digest = *Digest::of_bytes(about.as_bytes()).chain(&said).as_bytes();
        token
    }

    /// Returns true if the token belongs to the current state of the compaction.
    pub(super) fn names(&self, session: &SessionKey, running: &RunningCompaction) -> bool {
        *self == Self::of(session, running, self.options)
    }

    /// Returns the token's digest as a request id.
    pub(super) fn id(&self) -> Box<str> {
        format!("{:032x}", u128::from_be_bytes(self.digest)).into()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.push(VERSION);
        // Tokens outlive a restart and an upgrade, so these numbers keep their meaning within a version.
        out.push(match self.options.form {
            MessageForm::Json => 0,
            MessageForm::Typed => 1,
        });
        out.push(match self.options.provider {
            Provider::Anthropic => 0,
            Provider::Bedrock => 1,
            Provider::OpenAi => 2,
            Provider::OpenAiResponses => 3,
        });
        out.extend(self.key.get().to_be_bytes());
        out.extend(self.attempt.to_be_bytes());
        out.extend(self.options.window_tokens.to_be_bytes());
        out.extend(self.options.max_output_tokens.to_be_bytes());
        out.extend(self.digest);
        out
    }

    /// Decodes a token. Returns `None` if the bytes are not a token.
    pub(super) fn read(token: &[u8]) -> Option<Self> {
        let (head, rest) = token.split_first_chunk::<3>()?;
        let (key, rest) = rest.split_first_chunk::<4>()?;
        let (attempt, rest) = rest.split_first_chunk::<4>()?;
        let (window, rest) = rest.split_first_chunk::<8>()?;
        let (output, rest) = rest.split_first_chunk::<4>()?;
        // A token of another version is treated as unknown.
        let [VERSION, form, provider] = *head else {
            return None;
        };
        Some(Self {
            key: CompactionKey::new(u32::from_be_bytes(*key)),
            attempt: u32::from_be_bytes(*attempt),
            options: DelegationOptions {
                form: match form {
                    0 => MessageForm::Json,
                    1 => MessageForm::Typed,
                    _ => return None,
                },
                provider: match provider {
                    0 => Provider::Anthropic,
                    1 => Provider::Bedrock,
                    2 => Provider::OpenAi,
                    3 => Provider::OpenAiResponses,
                    _ => return None,
                },
                window_tokens: u64::from_be_bytes(*window),
                max_output_tokens: u32::from_be_bytes(*output),
            },
            digest: rest.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::event::Trigger;
    use palimpsest_core::ids::{CompactionKey, SessionKey, Timestamp};
    use palimpsest_core::session::{RunningCompaction, Strategy};
    use palimpsest_core::view::Provider;

    use super::{DelegationOptions, DelegationToken, MessageForm};

    #[test]
    fn a_delegation_token_is_valid_for_one_session_compaction_and_request() {
        let session = SessionKey::parse("projects/p/sessions/s").unwrap();
        let other = SessionKey::parse("projects/p/sessions/t").unwrap();
        let running = RunningCompaction {
            key: CompactionKey::new(7),
            trigger: Trigger::Manual,
            strategy: Strategy::Delegated,
            started_at: Timestamp::from_millis(5),
            deadline: Timestamp::from_millis(50),
            part: palimpsest_core::summary::SummaryPart::Whole,
            leaving: Vec::new(),
            pieces_at_start: 0,
            range_changed: false,
            ahead: false,
            instructions: None,
            attempt: 1,
            dropped: None,
            hooks: palimpsest_core::session::CompactionHooks::default(),
            request: None,
        };
        let options = DelegationOptions {
            form: MessageForm::Typed,
            provider: Provider::OpenAi,
            window_tokens: 128_000,
            max_output_tokens: 4_000,
        };
        let token = DelegationToken::of(&session, &running, options);
        let written = token.write();
        assert_eq!(DelegationToken::read(&written), Some(token));
        assert!(token.names(&session, &running) && !token.names(&other, &running));
        let again = RunningCompaction {
            attempt: 2,
            ..running.clone()
        };
        let later = RunningCompaction {
            started_at: Timestamp::from_millis(6),
            ..running.clone()
        };
        assert!(!token.names(&session, &again) && !token.names(&session, &later));
        // A changed byte and a shorter token must both be rejected, at every position.
        for at in 0..written.len() {
            let mut bent = written.clone();
            bent[at] ^= 0x41;
            let is_taken =
                DelegationToken::read(&bent).is_some_and(|bent| bent.names(&session, &running));
            assert!(!is_taken, "byte {at}");
            assert_eq!(DelegationToken::read(&written[..at]), None);
        }
    }
}
