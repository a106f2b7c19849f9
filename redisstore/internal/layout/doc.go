// Package layout names and encodes everything that is stored in Redis: keys, the cells of a key,
// hashes in the list of keys, and new keys as payloads of RESTORE. The documentation of package
// redisstore describes the layout. Nothing here talks to Redis or keeps state.
package layout
