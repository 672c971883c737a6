//! Level 5: which messages stay word for word, and what a summariser is told of the others.

mod keep;
mod oldest;
mod told;

pub use keep::{Keep, Kept, keep, oldest_within, replace, spared};
pub use oldest::oldest;
pub use told::{Told, told};
