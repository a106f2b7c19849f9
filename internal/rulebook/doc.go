// Package rulebook keeps the rules of a node at the newest version.
//
// All nodes share a [Store], which has the newest versions of one document. A [Keeper] asks it
// twice a second for the number of the newest version, and puts that version in force on its node.
// It also stores new versions: those put by users, and the content of a file of rules.
//
// # Versions
//
// Versions have numbers, from 1 on. A new version names the version it was made from, and is
// refused if that is no longer the newest one. A document with a mistake is refused as a whole. A
// rollback is a new version with an old text.
//
// While the store can't be reached, a node keeps its version; until it has learned one, its
// [rules.Book] holds none. If the store has lost versions, any node that notices restores the
// version it has in force; older ones are gone.
//
// # A file
//
// The content of a file of rules becomes a version at start, unless one of the stored versions has
// the same text: starting a node does not undo later puts. A file that changes while the node runs
// becomes a version unless the newest one has that text already. So of several nodes with the same
// file one stores it, and the last change wins, whether it comes from a put or from a file.
package rulebook
