//! The model and the instructions that a call sets for its own compaction.

use palimpsest_proto::context::v1;

use super::Service;
use crate::convert::MAX_MODEL_BYTES;
use crate::errors::ServiceError;

/// The error for a model on a server without one.
pub(super) const NO_MODEL: &str = "asks for a model, and this server has none: set summarizer.provider, \
                                   summarizer.model and its key in the server's configuration, or ask \
                                   for EXTRACTIVE";
/// The maximum length of a call's instructions: 16 KiB.
const MAX_INSTRUCTION_BYTES: usize = 16 * 1024;

/// The model and the instructions of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    /// The model for the summary. `None` selects the policy's model.
    pub(super) model: Option<Box<str>>,
    /// Instructions for this summary only.
    pub(super) instructions: Option<Box<str>>,
}

impl Overrides {
    /// Validates the overrides of a request. `field` is the name of their field, for errors.
    pub(super) fn read(
        service: &Service,
        field: &str,
        overrides: Option<&v1::CompactionOverrides>,
    ) -> Result<Self, ServiceError> {
        let Some(overrides) = overrides else {
            return Ok(Self::default());
        };
        // Blank values count as unset.
        let given = |text: &str| (!text.trim().is_empty()).then(|| Box::from(text));
        let read = Self {
            model: given(&overrides.model),
            instructions: given(&overrides.instructions),
        };
        let at_most = |text: Option<&str>, name: &str, limit: usize| match text {
            Some(text) if text.len() > limit => Err(ServiceError::invalid(
                format!("{field}.{name}"),
                format!("must have at most {limit} bytes"),
            )),
            _ => Ok(()),
        };
        if read.model.is_some() && service.models.is_none() {
            return Err(ServiceError::invalid(format!("{field}.model"), NO_MODEL));
        }
        at_most(read.model.as_deref(), "model", MAX_MODEL_BYTES)?;
        if let (Some(models), Some(name)) = (&service.models, &read.model)
            && !models.allows(name)
        {
            return Err(ServiceError::model_not_allowed(
                &format!("{field}.model"),
                name,
            ));
        }
        let instructions = read.instructions.as_deref();
        at_most(instructions, "instructions", MAX_INSTRUCTION_BYTES)?;
        Ok(read)
    }
}
