// Package connect opens the connections of a store to the servers of one URL, and finds out what
// stands in the way of using them: missing commands and permissions, rejected credentials, TLS that
// one side lacks, and a memory policy that evicts counts. It knows the commands in use, but not
// their purpose.
package connect
