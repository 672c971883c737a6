//! Level 5: a summary takes the place of messages. The running summary can do so at once; any other is
//! begun, made elsewhere, and finished, while messages go on coming in.

mod adopt;
mod ahead;
mod finish;
mod gate;
mod hook;
mod made;
mod oldest;
mod range;
mod ready;
mod start;
mod with_memory;

pub use self::adopt::Adopt;
pub use self::ahead::{CompactWithPrepared, prepares_ahead};
pub use self::finish::{FailCompaction, FinishCompaction, ShortenCompaction};
pub use self::gate::is_compaction_due;
pub use self::hook::AnswerHook;
pub use self::made::Made;
pub use self::oldest::DropOldest;
pub(super) use self::range::expired;
pub use self::ready::StartReady;
pub use self::start::{Scope, StartCompaction};
pub use self::with_memory::CompactWithMemory;
