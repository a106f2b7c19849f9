// Command forward measures what it costs to ask another node than the owner of a key, beside asking the owner, and beside the
// routing client, which asks owners itself.
package main
