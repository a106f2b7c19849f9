// Package rulebook keeps the rules of a node at the newest version that there is.
//
// All nodes share a [Store], which has the newest versions of one document. A [Keeper] asks it
// twice a second which version is the newest, and puts that in force on its node. It also stores
// new versions: those that somebody puts, and the content of a file of rules.
//
// # Versions
//
// Versions have numbers, from 1 on. A new one names the version that it was made from, and is
// refused if that is not the newest any more. A document with a mistake is refused whole. Going
// back is a new version with an old text.
//
// While the store can't be reached, a node keeps the version that it has; until it has learned one,
// its [rules.Book] holds none. If the store has lost versions, whoever notices puts the version
// back that it has in force; older ones are gone.
//
// # A file
//
// The content of a file of rules becomes a version at start, unless one of the versions that are
// kept has the same text: starting a node does not undo what was put since. A file that changes
// while the node runs becomes a version unless the newest one has that text already. So of several
// nodes with the same file one stores it, and the last change wins, whether it was put or is a
// file's.
package rulebook
