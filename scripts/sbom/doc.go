// Command sbom prints what a Go program is made of as a software bill of materials in the format
// CycloneDX 1.6: the modules that were linked, with their versions, and the standard library. It
// reads what the linker has left in the program, so it says neither more nor less than what is in
// it, and the same for the same program. The version of the program itself is an argument.
package main
