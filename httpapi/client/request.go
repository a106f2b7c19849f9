package client

import "time"

// Limit is one rule: at most Max events in any window of that length.
type Limit struct {
	// Window is a whole number of milliseconds, at least one, and no longer than the namespace
	// covers (24 h unless configured).
	Window time.Duration
	// Max is 0 or more.
	Max int64
}

// Ack says what must have happened before a call that counts returns.
type Ack string

// The values of Ack.
const (
	// AckDefault is what the server is configured to.
	AckDefault Ack = ""
	// AckMemory waits for the memory of a node: what it has not flushed is lost if it is killed.
	AckMemory Ack = "memory"
	// AckRedis waits for Redis.
	AckRedis Ack = "redis"
	// AckReplica waits for a replica of Redis: what it has survives a failover to that one.
	AckReplica Ack = "replica"
	// AckDisk waits for the disk of Redis, which needs Redis 7.2 and an append-only file.
	AckDisk Ack = "disk"
)

// waits reports whether a call waits for more than memory.
func (a Ack) waits() bool { return a == AckRedis || a == AckReplica || a == AckDisk }

// AddRequest counts events of a key.
type AddRequest struct {
	// Namespace is 1 to 64 letters, digits, "_", "." and "-". Default: "default".
	Namespace string
	// Key is 1 to 256 bytes of UTF-8 without control characters.
	Key string
	// N is how many, -(2^31-1) to 2^31-1; less than 0 takes back. 0 stands for 1.
	N int64
	// At is when they happened, to the millisecond, as far back as the namespace covers. Default:
	// now.
	At time.Time
	// Ack is what to wait for.
	Ack Ack
	// Limits, up to 16, are compared with after counting.
	Limits []Limit
}

// CountRequest asks for the counts of a key.
type CountRequest struct {
	// Namespace and Key are as in AddRequest.
	Namespace, Key string
	// Windows, up to 64, are as in Limit. Required.
	Windows []time.Duration
	// At is the end of the windows, to the millisecond. Default: now.
	At time.Time
}

// Check is one key with the limits that it must keep.
type Check struct {
	// Namespace, Key and Limits are as in AddRequest. At least one limit is required.
	Namespace, Key string
	// N is how many events want to pass, up to 2^31-1. 0 stands for 1.
	N      int64
	Limits []Limit
}

// AcquireRequest asks whether events may pass, and counts them if so: all checks hold or nothing is
// counted.
type AcquireRequest struct {
	// Check is the only check, unless there are Checks.
	Check
	// Checks, up to 64, are several keys at once. With them Check must be empty.
	Checks []Check
	// At and Ack are as in AddRequest.
	At  time.Time
	Ack Ack
	// CountDenied counts even if refused.
	CountDenied bool
}

// Op is one operation of a batch: exactly one of the fields is set.
type Op struct {
	Add     *AddRequest
	Count   *CountRequest
	Acquire *AcquireRequest
}
