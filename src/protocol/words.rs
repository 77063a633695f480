//! Enums whose variants have one spelling each, declared with it.

/// Declares an enum of words. It has `ALL`, in the order of the declaration, a function that reads a word, and one that
/// gives it; the declaration names both.
#[macro_export]
macro_rules! words {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident reads $of:ident, says $word:ident {
            $( $(#[$doc:meta])* $variant:ident = $text:literal ),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$doc])* #[doc = concat!(" `", $text, "`")] $variant, )+
        }

        impl $name {
            /// Every one, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The one that is written so.
            pub fn $of(text: &str) -> Option<Self> {
                match text {
                    $( $text => Some(Self::$variant), )+
                    _ => None,
                }
            }

            /// How it is written.
            pub fn $word(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }
        }
    };
}
