// Package version says which version of twotier a program was built from. [Number] is the only
// place in the code that has it: a release is a commit in which it is the newest heading of
// CHANGELOG.md, with a tag of that name.
//
// A program that go install built from a version of the module says that version. One that was
// built from a clone says Number and, as far as the build recorded it, the commit.
package version
