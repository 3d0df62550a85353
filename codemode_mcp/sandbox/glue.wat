;; What is added to the engine, in its own small module beside it: one coarse entry per turn, so that the host crosses
;; into WebAssembly a handful of times however many jobs a turn runs; the interrupt handler, so that a program that
;; computes past its time is stopped by the engine itself with its state intact; the rejection tracker; the module
;; loader, which loads nothing; the natives, functions that would be slow in JavaScript; and the hooks, which replace
;; functions of the engine (`binary.with_hooks`).
;; JSValues are 64 bits (NaN boxing), tag in the upper half: 2 null, 3 undefined, 6 exception.
(module
  (import "engine" "memory" (memory $memory 0))
  (import "engine" "table" (table 0 funcref))
  (import "engine" "stack_pointer" (global $stack_pointer (mut i32)))
  (import "engine" "JS_NewStringLen" (func $JS_NewStringLen (param i32 i32 i32) (result i64)))
  (import "engine" "JS_Call" (func $JS_Call (param i32 i64 i64 i32 i32) (result i64)))
  (import "engine" "JS_FreeValue" (func $JS_FreeValue (param i32 i64)))
  (import "engine" "JS_ExecutePendingJob" (func $JS_ExecutePendingJob (param i32 i32) (result i32)))
  (import "engine" "JS_GetException" (func $JS_GetException (param i32) (result i64)))
  (import "engine" "JS_ToCStringLen2" (func $JS_ToCStringLen2 (param i32 i32 i64 i32) (result i32)))
  (import "engine" "JS_FreeCString" (func $JS_FreeCString (param i32 i32)))
  (import "engine" "JS_Throw" (func $JS_Throw (param i32 i64) (result i64)))
  (import "engine" "JS_NewNumber" (func $JS_NewNumber (param i32 f64) (result i64)))
  (import "engine" "JS_ToInt32" (func $JS_ToInt32 (param i32 i32 i64) (result i32)))
  (import "engine" "JS_ToBool" (func $JS_ToBool (param i32 i64) (result i32)))
  (import "engine" "JS_GetUint8Array" (func $JS_GetUint8Array (param i32 i32 i64) (result i32)))
  (import "engine" "JS_NewUint8ArrayCopy" (func $JS_NewUint8ArrayCopy (param i32 i32 i32) (result i64)))
  (import "engine" "JS_DupValue" (func $JS_DupValue (param i32 i64) (result i64)))
  (import "engine" "JS_ToFloat64" (func $JS_ToFloat64 (param i32 i32 i64) (result i32)))
  (import "engine" "JS_IsProxy" (func $JS_IsProxy (param i64) (result i32)))
  (import "engine" "JS_GetClassID" (func $JS_GetClassID (param i64) (result i32)))
  (import "engine" "JS_GetClassProto" (func $JS_GetClassProto (param i32 i32) (result i64)))
  (import "engine" "JS_GetPrototype" (func $JS_GetPrototype (param i32 i64) (result i64)))
  (import "engine" "JS_GetLength" (func $JS_GetLength (param i32 i64 i32) (result i32)))
  (import "engine" "JS_GetOwnProperty" (func $JS_GetOwnProperty (param i32 i32 i64 i32) (result i32)))
  (import "engine" "JS_GetOwnPropertyNames" (func $JS_GetOwnPropertyNames (param i32 i32 i32 i64 i32) (result i32)))
  (import "engine" "JS_FreePropertyEnum" (func $JS_FreePropertyEnum (param i32 i32 i32)))
  (import "engine" "js_malloc" (func $js_malloc (param i32 i32) (result i32)))
  (import "engine" "JS_AtomToCStringLen" (func $JS_AtomToCStringLen (param i32 i32 i32) (result i32)))
  (import "engine" "js_realloc" (func $js_realloc (param i32 i32 i32) (result i32)))
  (import "engine" "js_free" (func $js_free (param i32 i32)))
  (import "engine" "JS_IsFunction" (func $JS_IsFunction (param i32 i64) (result i32)))
  (import "engine" "JS_EnqueueJob" (func $JS_EnqueueJob (param i32 i32 i32 i32) (result i32)))
  (import "engine" "JS_IsUncatchableError" (func $JS_IsUncatchableError (param i64) (result i32)))
  (import "engine" "JS_NewPromiseCapability" (func $JS_NewPromiseCapability (param i32 i32) (result i64)))
  (import "engine" "JS_DefinePropertyValue" (func $JS_DefinePropertyValue (param i32 i64 i32 i64 i32) (result i32)))
  (import "engine" "JS_NewArrayFrom" (func $JS_NewArrayFrom (param i32 i32 i32) (result i64)))
  (import "engine" "JS_GetAnyOpaque" (func $JS_GetAnyOpaque (param i64 i32) (result i32)))
  (import "engine" "JS_HasProperty" (func $JS_HasProperty (param i32 i64 i32) (result i32)))
  (import "engine" "JS_Eval" (func $JS_Eval (param i32 i32 i32 i32 i32) (result i64)))
  (import "engine" "JS_GetProperty" (func $JS_GetProperty (param i32 i64 i32) (result i64)))
  (import "engine" "JS_HasException" (func $JS_HasException (param i32) (result i32)))
  (import "engine" "JS_DefinePropertyGetSet"
    (func $JS_DefinePropertyGetSet (param i32 i64 i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))

  ;; WASI writes the time into the memory its caller exports.
  (export "memory" (memory $memory))

  ;; Set once per instance by `bind`, or at the start of an entry; nothing here outlives a turn, so nothing here is part
  ;; of a snapshot.
  (global $ctx (mut i32) (i32.const 0))
  (global $rt (mut i32) (i32.const 0))
  (global $scratch (mut i32) (i32.const 0))   ;; guest memory that is ours, see below
  (global $state (mut i32) (i32.const 0))     ;; the same, but part of a snapshot; see the natives
  (global $tracker (mut i64) (i64.const 0))   ;; the prelude's onRejection
  (global $denial (mut i64) (i64.const 0))    ;; the prelude's moduleDenied
  (global $deadline (mut i64) (i64.const -1)) ;; on the monotonic clock, in nanoseconds; unsigned
  (global $stopped (mut i32) (i32.const 0))   ;; the deadline was met since `arm`

  (func (export "bind")
    (param $ctx i32) (param $rt i32) (param $scratch i32) (param $state i32) (param $tracker i64) (param $denial i64)
    (global.set $ctx (local.get $ctx))
    (global.set $rt (local.get $rt))
    (global.set $scratch (local.get $scratch))
    (global.set $state (local.get $state))
    (global.set $tracker (local.get $tracker))
    (global.set $denial (local.get $denial)))

  (func $now (result i64)
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (global.get $scratch)))
    (i64.load (global.get $scratch)))

  ;; Scratch: 0 time, 8 length of the collected text, 12 its address, 16 arguments of the tracker, 40 argument of an
  ;; entry, 48 context of a job, 56 set by the host, from another thread, to stop what runs, 64 short messages.
  (func $arm (param $budget i64)
    (global.set $stopped (i32.const 0))
    (global.set $deadline (i64.add (call $now) (local.get $budget))))

  (func $on_interrupt (param $rt i32) (param $opaque i32) (result i32)
    (global.set $stopped
      (i32.or
        (i32.load offset=56 (global.get $scratch))
        (i64.ge_u (call $now) (global.get $deadline))))
    (global.get $stopped))

  (func $on_rejection (param $ctx i32) (param $promise i64) (param $reason i64) (param $handled i32) (param $opaque i32)
    (local $argv i32)
    (local $result i64)
    (if (i64.eqz (global.get $tracker)) (then (return)))
    (local.set $argv (i32.add (global.get $scratch) (i32.const 16)))
    (i64.store (local.get $argv) (local.get $promise))
    (i64.store offset=8 (local.get $argv) (local.get $reason))
    (i64.store offset=16 (local.get $argv)
      (i64.or (i64.const 0x100000000) (i64.extend_i32_u (i32.ne (local.get $handled) (i32.const 0)))))
    (local.set $result
      (call $JS_Call (local.get $ctx) (global.get $tracker) (i64.const 0x300000000) (i32.const 3) (local.get $argv)))
    (if (call $is_exception (local.get $result))
      (then (call $JS_FreeValue (local.get $ctx) (call $JS_GetException (local.get $ctx))))
      (else (call $JS_FreeValue (local.get $ctx) (local.get $result)))))

  ;; The module loader: there are none. The prelude makes the error, so that it is known as ours.
  (func $on_module (param $ctx i32) (param $name i32) (param $opaque i32) (result i32)
    (local $error i64)
    (local.set $error
      (call $JS_Call (local.get $ctx) (global.get $denial) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (i32.eqz (call $is_exception (local.get $error)))
      (then (drop (call $JS_Throw (local.get $ctx) (local.get $error)))))
    (i32.const 0))

  (elem (table 0) (offset (i32.const 580)) func $on_interrupt $on_rejection $on_module $on_microtask
    $seed $random $random_bytes $random_uuid $encode_utf8 $decode_utf8
    $plain_json $is_proxy $set_collation $compare $grouped
    $date_text $set_function $helper_next $helper_return
    $number_text $big_int_text $queue_microtask $parse_json $deferred $evaluate $long_digits $raw_stack $set_raw_stack
    $compile_regexp $regexp_flag $parse_date $date_string $backtrace $weak_ref $deref $aggregate
    $regexp_exec $advance_index $set_date $copy_members)

  (func $is_exception (param $value i64) (result i32)
    (i64.eq (i64.shr_u (local.get $value) (i64.const 32)) (i64.const 6)))

  ;; fn(argument); 1 when it threw, the exception left pending.
  (func $call1 (param $fn i64) (param $argument i64) (result i32)
    (local $argv i32)
    (local $result i64)
    (local.set $argv (i32.add (global.get $scratch) (i32.const 40)))
    (i64.store (local.get $argv) (local.get $argument))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 1) (local.get $argv)))
    (if (result i32) (call $is_exception (local.get $result))
      (then (i32.const 1))
      (else
        (call $JS_FreeValue (global.get $ctx) (local.get $result))
        (i32.const 0))))

  (func $drop_exception
    (call $JS_FreeValue (global.get $ctx) (call $JS_GetException (global.get $ctx))))

  ;; entry(input), then the job queue until it is dry, then `collect` with a budget of its own.
  ;; 0 at rest, the text collected; 3 at rest without a text; 1 an exception is pending; 2 the same, because the
  ;; budget (nanoseconds) was used up or the host said so; 4 and 7 as 0 and 3, but that was so too, and something in the
  ;; program swallowed it, as executors of promises do.
  (func (export "run")
    (param $entry i64) (param $input i32) (param $length i32) (param $budget i64) (param $fn i64) (param $grace i64)
    (result i32)
    (local $text i64)
    (local $threw i32)
    (local $status i32)
    (call $arm (local.get $budget))
    (local.set $text (call $JS_NewStringLen (global.get $ctx) (local.get $input) (local.get $length)))
    (if (call $is_exception (local.get $text)) (then (return (i32.const 1))))
    (local.set $threw (call $call1 (local.get $entry) (local.get $text)))
    (call $JS_FreeValue (global.get $ctx) (local.get $text))
    (if (i32.eqz (local.get $threw))
      (then
        (loop $jobs
          (local.set $status
            (call $JS_ExecutePendingJob (global.get $rt) (i32.add (global.get $scratch) (i32.const 48))))
          (br_if $jobs (i32.gt_s (local.get $status) (i32.const 0))))
        (if (i32.eqz (local.get $status))
          (then
            (local.set $status (i32.shl (global.get $stopped) (i32.const 2)))
            (return
              (i32.add
                (local.get $status)
                (select (i32.const 0) (i32.const 3) (call $collect (local.get $fn) (local.get $grace)))))))))
    (local.set $status (i32.add (i32.const 1) (call $on_interrupt (i32.const 0) (i32.const 0))))
    (i32.store offset=56 (global.get $scratch) (i32.const 0))
    (local.get $status))

  ;; Hand the pending exception to the prelude's `fault`; a failure of that is dropped.
  (func (export "report") (param $fault i64) (param $budget i64)
    (local $exception i64)
    (call $arm (local.get $budget))
    (local.set $exception (call $JS_GetException (global.get $ctx)))
    (if (call $call1 (local.get $fault) (local.get $exception)) (then (call $drop_exception)))
    (call $JS_FreeValue (global.get $ctx) (local.get $exception)))

  ;; collect() as text: its length at scratch + 8, its address at scratch + 12, until `release`. 0 when it threw.
  (func $collect (export "collect") (param $fn i64) (param $budget i64) (result i32)
    (local $result i64)
    (local $text i32)
    (call $release)
    (call $arm (local.get $budget))
    (local.set $result
      (call $JS_Call (global.get $ctx) (local.get $fn) (i64.const 0x300000000) (i32.const 0) (i32.const 0)))
    (if (call $is_exception (local.get $result)) (then (call $drop_exception) (return (i32.const 0))))
    (local.set $text
      (call $JS_ToCStringLen2
        (global.get $ctx) (i32.add (global.get $scratch) (i32.const 8)) (local.get $result) (i32.const 0)))
    (call $JS_FreeValue (global.get $ctx) (local.get $result))
    (if (i32.eqz (local.get $text)) (then (call $drop_exception)))
    (i32.store offset=12 (global.get $scratch) (local.get $text))
    (i32.ne (local.get $text) (i32.const 0)))

  ;; Free the collected text, if there is one.
  (func $release (export "release")
    (if (i32.load offset=12 (global.get $scratch))
      (then
        (call $JS_FreeCString (global.get $ctx) (i32.load offset=12 (global.get $scratch)))
        (i32.store offset=12 (global.get $scratch) (i32.const 0)))))

  ;; The natives: C functions for the prelude. Programs get `random`, `random_uuid`, the helpers', those that make text of
  ;; numbers, `queue_microtask` and `parse_json`; the prelude keeps the others. They make new values and read what the prelude
  ;; has made for them; none writes to memory that a program holds. In the table they follow the four above, in the order
  ;; of `boot.NATIVES`.
  ;; State: 0 ChaCha20's state, 64 its last block, 128 how many bytes of that are left, 136 a size, 144 an address, 160 a
  ;; UUID as text, 200 a property descriptor, 232 atoms: toJSON, Symbol.toStringTag, data, blob, 248 the
  ;; table of `compare`, 256 and 272 how far that is in either text, 288 functions of the prelude's and the engine's, see
  ;; `set_function`, 360 the end of the engine's stack, 364 the place of the iterator helpers' `next` in the
  ;; table, 368 the atom of `constructor`, 372 the class of iterator helpers, 376 the atom of `return`, 384 further
  ;; functions, 464 atoms: stack, message, and the one under which an error has its frames; 476 whether a pattern has had the flag `v`.

  (func $undefined (result i64) (i64.const 0x300000000))
  (func $exception (result i64) (i64.const 0x600000000))

  ;; Argument `n` of a native.
  (func $argument (param $argv i32) (param $n i32) (result i64)
    (i64.load (i32.add (local.get $argv) (i32.shl (local.get $n) (i32.const 3)))))

  ;; seed(bytes): begin with a key of 32 bytes.
  (func $seed (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local.set $bytes
      (call $JS_GetUint8Array
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (if (i32.ne (i32.load offset=136 (global.get $state)) (i32.const 32)) (then (unreachable)))
    (i64.store (global.get $state) (i64.const 0x3320646e61707865))
    (i64.store offset=8 (global.get $state) (i64.const 0x6b20657479622d32))
    (memory.copy (i32.add (global.get $state) (i32.const 16)) (local.get $bytes) (i32.const 32))
    (memory.fill (i32.add (global.get $state) (i32.const 48)) (i32.const 0) (i32.const 84))
    (call $undefined))

  ;; The next block of ChaCha20 (RFC 8439), a row of its matrix in each register. Counter and nonce are one counter of
  ;; 64 bits and zeros: a key is of one run.
  (func $block
    (local $a v128)
    (local $b v128)
    (local $c v128)
    (local $d v128)
    (local $round i32)
    (local.set $a (v128.load (global.get $state)))
    (local.set $b (v128.load offset=16 (global.get $state)))
    (local.set $c (v128.load offset=32 (global.get $state)))
    (local.set $d (v128.load offset=48 (global.get $state)))
    (loop $rounds
      ;; Columns; then the diagonals are turned into columns.
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 16)) (i32x4.shr_u (local.get $d) (i32.const 16))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 12)) (i32x4.shr_u (local.get $b) (i32.const 20))))
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 8)) (i32x4.shr_u (local.get $d) (i32.const 24))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 7)) (i32x4.shr_u (local.get $b) (i32.const 25))))
      (local.set $b (i8x16.shuffle 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 (local.get $b) (local.get $b)))
      (local.set $c (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $c) (local.get $c)))
      (local.set $d (i8x16.shuffle 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 (local.get $d) (local.get $d)))
      ;; Diagonals, and back.
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 16)) (i32x4.shr_u (local.get $d) (i32.const 16))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 12)) (i32x4.shr_u (local.get $b) (i32.const 20))))
      (local.set $a (i32x4.add (local.get $a) (local.get $b)))
      (local.set $d (v128.xor (local.get $d) (local.get $a)))
      (local.set $d
        (v128.or (i32x4.shl (local.get $d) (i32.const 8)) (i32x4.shr_u (local.get $d) (i32.const 24))))
      (local.set $c (i32x4.add (local.get $c) (local.get $d)))
      (local.set $b (v128.xor (local.get $b) (local.get $c)))
      (local.set $b
        (v128.or (i32x4.shl (local.get $b) (i32.const 7)) (i32x4.shr_u (local.get $b) (i32.const 25))))
      (local.set $b (i8x16.shuffle 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10 11 (local.get $b) (local.get $b)))
      (local.set $c (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $c) (local.get $c)))
      (local.set $d (i8x16.shuffle 4 5 6 7 8 9 10 11 12 13 14 15 0 1 2 3 (local.get $d) (local.get $d)))
      (local.set $round (i32.add (local.get $round) (i32.const 1)))
      (br_if $rounds (i32.lt_u (local.get $round) (i32.const 10))))
    (v128.store offset=64 (global.get $state) (i32x4.add (local.get $a) (v128.load (global.get $state))))
    (v128.store offset=80 (global.get $state) (i32x4.add (local.get $b) (v128.load offset=16 (global.get $state))))
    (v128.store offset=96 (global.get $state) (i32x4.add (local.get $c) (v128.load offset=32 (global.get $state))))
    (v128.store offset=112 (global.get $state) (i32x4.add (local.get $d) (v128.load offset=48 (global.get $state))))
    (i64.store offset=48 (global.get $state) (i64.add (i64.load offset=48 (global.get $state)) (i64.const 1)))
    (i32.store offset=128 (global.get $state) (i32.const 64)))

  (func $next_word (result i64)
    (local $left i32)
    (if (i32.eqz (i32.load offset=128 (global.get $state))) (then (call $block)))
    (local.set $left (i32.load offset=128 (global.get $state)))
    (i32.store offset=128 (global.get $state) (i32.sub (local.get $left) (i32.const 8)))
    (i64.load offset=128 (i32.sub (global.get $state) (local.get $left))))

  ;; random(): 53 bits, from 0 to below 1.
  (func $random (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (call $JS_NewNumber (local.get $ctx)
      (f64.mul (f64.convert_i64_u (i64.shr_u (call $next_word) (i64.const 11))) (f64.const 0x1p-53))))

  ;; randomBytes(n), a Uint8Array.
  (func $random_bytes (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $size i32)
    (local $at i32)
    (local $value i64)
    (if (call $JS_ToInt32 (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)))
      (then (return (call $exception))))
    ;; Whole words are drawn, into a buffer with room for the last one.
    (local.set $size (i32.load offset=136 (global.get $state)))
    (local.set $bytes (call $js_malloc (local.get $ctx) (i32.add (local.get $size) (i32.const 8))))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (loop $words
      (i64.store (i32.add (local.get $bytes) (local.get $at)) (call $next_word))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $words (i32.lt_u (local.get $at) (local.get $size))))
    (local.set $value (call $JS_NewUint8ArrayCopy (local.get $ctx) (local.get $bytes) (local.get $size)))
    (call $js_free (local.get $ctx) (local.get $bytes))
    (local.get $value))

  ;; randomUUID(), of version 4.
  (func $random_uuid (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $text i32)
    (local $digit i32)
    (local $i i32)
    (local $bits i64)
    (local.set $text (i32.add (global.get $state) (i32.const 160)))
    (loop $characters
      (if (i32.eqz (i32.and (local.get $i) (i32.const 15))) (then (local.set $bits (call $next_word))))
      (local.set $digit (i32.and (i32.wrap_i64 (local.get $bits)) (i32.const 15)))
      (local.set $bits (i64.shr_u (local.get $bits) (i64.const 4)))
      (if (i32.eq (local.get $i) (i32.const 12)) (then (local.set $digit (i32.const 4))))
      (if (i32.eq (local.get $i) (i32.const 16))
        (then (local.set $digit (i32.or (i32.const 8) (i32.and (local.get $digit) (i32.const 3))))))
      (if
        (i32.or
          (i32.or (i32.eq (local.get $i) (i32.const 8)) (i32.eq (local.get $i) (i32.const 12)))
          (i32.or (i32.eq (local.get $i) (i32.const 16)) (i32.eq (local.get $i) (i32.const 20))))
        (then
          (i32.store8 (local.get $text) (i32.const 45))
          (local.set $text (i32.add (local.get $text) (i32.const 1)))))
      (i32.store8 (local.get $text) (call $hex_digit (local.get $digit)))
      (local.set $text (i32.add (local.get $text) (i32.const 1)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $characters (i32.lt_u (local.get $i) (i32.const 32))))
    (call $JS_NewStringLen (local.get $ctx) (i32.add (global.get $state) (i32.const 160)) (i32.const 36)))

  ;; encodeUtf8(text), a Uint8Array. The text has no lone surrogates.
  (func $encode_utf8 (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $value i64)
    (local.set $bytes
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)) (i32.const 0)))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (local.set $value
      (call $JS_NewUint8ArrayCopy (local.get $ctx) (local.get $bytes) (i32.load offset=136 (global.get $state))))
    (call $JS_FreeCString (local.get $ctx) (local.get $bytes))
    (local.get $value))

  ;; decodeUtf8(bytes, fatal): a string, with U+FFFD for what is malformed; null where something is and that is fatal.
  (func $decode_utf8 (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $size i32)
    (local $mended i32)
    (local $value i64)
    (local.set $bytes
      (call $JS_GetUint8Array
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (if (i32.eqz (local.get $bytes)) (then (return (call $exception))))
    (local.set $size (i32.load offset=136 (global.get $state)))
    (local.set $mended (call $mend_utf8 (local.get $bytes) (local.get $size) (i32.const 0)))
    (if (i32.eq (local.get $mended) (i32.const -1))
      (then (return (call $JS_NewStringLen (local.get $ctx) (local.get $bytes) (local.get $size)))))
    (if (call $JS_ToBool (local.get $ctx) (call $argument (local.get $argv) (i32.const 1)))
      (then (return (i64.const 0x200000000))))
    (local.set $mended (call $js_malloc (local.get $ctx) (local.get $mended)))
    (if (i32.eqz (local.get $mended)) (then (return (call $exception))))
    (local.set $size (call $mend_utf8 (local.get $bytes) (local.get $size) (local.get $mended)))
    (local.set $value (call $JS_NewStringLen (local.get $ctx) (local.get $mended) (local.get $size)))
    (call $js_free (local.get $ctx) (local.get $mended))
    (local.get $value))

  ;; Copy UTF-8 to `to`, unless that is 0. A malformed sequence is replaced up to, not including, the first byte that breaks
  ;; it (WHATWG Encoding, 8.1.1). The size of the copy, or -1 when it is the same.
  (func $mend_utf8 (param $from i32) (param $size i32) (param $to i32) (result i32)
    (local $end i32)
    (local $next i32)
    (local $byte i32)
    (local $needed i32)
    (local $lower i32)
    (local $upper i32)
    (local $written i32)
    (local $malformed i32)
    (local.set $end (i32.add (local.get $from) (local.get $size)))
    (block $done
      (loop $sequences
        (block $other
          (loop $ascii
            (br_if $other (i32.gt_u (i32.add (local.get $from) (i32.const 8)) (local.get $end)))
            (br_if $other
              (i64.ne (i64.and (i64.load (local.get $from)) (i64.const 0x8080808080808080)) (i64.const 0)))
            (if (local.get $to)
              (then (i64.store (i32.add (local.get $to) (local.get $written)) (i64.load (local.get $from)))))
            (local.set $from (i32.add (local.get $from) (i32.const 8)))
            (local.set $written (i32.add (local.get $written) (i32.const 8)))
            (br $ascii)))
        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $byte (i32.load8_u (local.get $from)))
        (local.set $next (i32.add (local.get $from) (i32.const 1)))
        (local.set $lower (i32.const 0x80))
        (local.set $upper (i32.const 0xbf))
        (local.set $needed
          (if (result i32) (i32.lt_u (local.get $byte) (i32.const 0xe0))
            (then (i32.ge_u (local.get $byte) (i32.const 0x80)))
            (else (select (i32.const 2) (i32.const 3) (i32.lt_u (local.get $byte) (i32.const 0xf0))))))
        ;; No overlong forms, no surrogates, nothing above U+10FFFF.
        (if (i32.eq (local.get $byte) (i32.const 0xe0)) (then (local.set $lower (i32.const 0xa0))))
        (if (i32.eq (local.get $byte) (i32.const 0xed)) (then (local.set $upper (i32.const 0x9f))))
        (if (i32.eq (local.get $byte) (i32.const 0xf0)) (then (local.set $lower (i32.const 0x90))))
        (if (i32.eq (local.get $byte) (i32.const 0xf4)) (then (local.set $upper (i32.const 0x8f))))
        ;; What begins no sequence: a range that nothing is in.
        (if
          (i32.or
            (i32.and
              (i32.ge_u (local.get $byte) (i32.const 0x80))
              (i32.lt_u (local.get $byte) (i32.const 0xc2)))
            (i32.gt_u (local.get $byte) (i32.const 0xf4)))
          (then (local.set $lower (i32.const 0x100))))
        (block $broken
          (loop $trail
            (br_if $broken (i32.eqz (local.get $needed)))
            (br_if $broken (i32.ge_u (local.get $next) (local.get $end)))
            (local.set $byte (i32.load8_u (local.get $next)))
            (br_if $broken (i32.lt_u (local.get $byte) (local.get $lower)))
            (br_if $broken (i32.gt_u (local.get $byte) (local.get $upper)))
            (local.set $lower (i32.const 0x80))
            (local.set $upper (i32.const 0xbf))
            (local.set $needed (i32.sub (local.get $needed) (i32.const 1)))
            (local.set $next (i32.add (local.get $next) (i32.const 1)))
            (br $trail)))
        (if (local.get $needed)
          (then
            (local.set $malformed (i32.const 1))
            (if (local.get $to)
              (then
                (i32.store16 (i32.add (local.get $to) (local.get $written)) (i32.const 0xbfef))
                (i32.store8 offset=2 (i32.add (local.get $to) (local.get $written)) (i32.const 0xbd))))
            (local.set $written (i32.add (local.get $written) (i32.const 3))))
          (else
            (local.set $size (i32.sub (local.get $next) (local.get $from)))
            (if (local.get $to)
              (then
                (memory.copy
                  (i32.add (local.get $to) (local.get $written)) (local.get $from) (local.get $size))))
            (local.set $written (i32.add (local.get $written) (local.get $size)))))
        (local.set $from (local.get $next))
        (br $sequences)))
    (select (local.get $written) (i32.const -1) (local.get $malformed)))

  (func $is_proxy (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (i64.or
      (i64.const 0x100000000)
      (i64.extend_i32_u (i32.ne (call $JS_IsProxy (i64.load (local.get $argv))) (i32.const 0)))))

  ;; plainJson(value, depth, most): JSON of a value, as the prelude's `encode` makes it, or undefined where that takes more
  ;; than reading data: the value has to be made of data in the built-in kinds of objects and arrays, fewer than 100 levels
  ;; deep with the `depth` that it is at, without a string in `data` or `blob` that is longer than `most`, and without a
  ;; BigInt of more than 4,300 digits. If `most` is 2^31 - 1, Numbers beyond 2^53 have an exponent; see `numberJson`. Nothing
  ;; of the program's runs. Undefined also where there is not enough memory, and for what takes too long to tell.
  (global $out (mut i32) (i32.const 0))      ;; what is written so far
  (global $size (mut i32) (i32.const 0))
  (global $capacity (mut i32) (i32.const 0))
  (global $full (mut i32) (i32.const 0))     ;; there was no memory for it; an exception is pending
  (global $most (mut i32) (i32.const 0))
  (global $visits (mut i32) (i32.const 0))   ;; values that may still be looked at
  (global $objects (mut i64) (i64.const 0))  ;; Object.prototype
  (global $arrays (mut i64) (i64.const 0))   ;; Array.prototype

  (func $plain_json (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $depth i32)
    (local $result i64)
    (drop
      (call $JS_ToInt32 (local.get $ctx) (i32.add (global.get $state) (i32.const 136))
        (call $argument (local.get $argv) (i32.const 1))))
    (local.set $depth (i32.load offset=136 (global.get $state)))
    (drop
      (call $JS_ToInt32 (local.get $ctx) (i32.add (global.get $state) (i32.const 136))
        (call $argument (local.get $argv) (i32.const 2))))
    (global.set $most (i32.load offset=136 (global.get $state)))
    (global.set $out (i32.const 0))
    (global.set $size (i32.const 0))
    (global.set $capacity (i32.const 0))
    (global.set $full (i32.const 0))
    (global.set $visits (i32.const 2000000))
    (global.set $objects (call $JS_GetClassProto (local.get $ctx) (i32.const 1)))
    (global.set $arrays (call $JS_GetClassProto (local.get $ctx) (i32.const 2)))
    (local.set $result (call $undefined))
    (if (i32.or (call $is_text (i64.load (local.get $argv))) (call $plain_prototypes (local.get $ctx)))
      (then
        (if (call $put_value (local.get $ctx) (i64.load (local.get $argv)) (local.get $depth))
          (then
            (local.set $result
              (call $JS_NewStringLen (local.get $ctx) (global.get $out) (global.get $size)))))))
    (if (i32.or (global.get $full) (call $is_exception (local.get $result)))
      (then
        (call $drop_exception)
        (local.set $result (call $undefined))))
    (call $js_free (local.get $ctx) (global.get $out))
    (call $JS_FreeValue (local.get $ctx) (global.get $objects))
    (call $JS_FreeValue (local.get $ctx) (global.get $arrays))
    (local.get $result))

  (func $has_own (param $ctx i32) (param $object i64) (param $atom i32) (result i32)
    (i32.ne (call $JS_GetOwnProperty (local.get $ctx) (i32.const 0) (local.get $object) (local.get $atom)) (i32.const 0)))

  ;; The prototype of `object` is `expected`, or null where that will do.
  (func $inherits (param $ctx i32) (param $object i64) (param $expected i64) (param $or_null i32) (result i32)
    (local $prototype i64)
    (local.set $prototype (call $JS_GetPrototype (local.get $ctx) (local.get $object)))
    (call $JS_FreeValue (local.get $ctx) (local.get $prototype))
    (i32.or
      (i64.eq (local.get $prototype) (local.get $expected))
      (i32.and (local.get $or_null) (i64.eq (i64.shr_u (local.get $prototype) (i64.const 32)) (i64.const 2)))))

  ;; The program has put no toJSON on the prototypes, and no tag.
  (func $plain_prototypes (param $ctx i32) (result i32)
    (if (i32.eqz (call $inherits (local.get $ctx) (global.get $arrays) (global.get $objects) (i32.const 0)))
      (then (return (i32.const 0))))
    (if (call $has_own (local.get $ctx) (global.get $arrays) (i32.load offset=232 (global.get $state)))
      (then (return (i32.const 0))))
    (if (call $has_own (local.get $ctx) (global.get $objects) (i32.load offset=232 (global.get $state)))
      (then (return (i32.const 0))))
    (i32.eqz (call $has_own (local.get $ctx) (global.get $objects) (i32.load offset=236 (global.get $state)))))

  ;; The tag of a value: from -9 to 7, or another for a double.
  (func $tag (param $value i64) (result i32) (i32.wrap_i64 (i64.shr_u (local.get $value) (i64.const 32))))

  (func $is_text (param $value i64) (result i32)
    (i32.lt_u (i32.sub (call $tag (local.get $value)) (i32.const -7)) (i32.const 2)))

  ;; The functions that follow return 0 when the value is not plain, or there is no memory.
  (func $put_value (param $ctx i32) (param $value i64) (param $depth i32) (result i32)
    (local $tag i32)
    (local $class i32)
    (global.set $visits (i32.sub (global.get $visits) (i32.const 1)))
    (if (i32.eqz (global.get $visits)) (then (return (i32.const 0))))
    (local.set $tag (call $tag (local.get $value)))
    (if (i32.eqz (local.get $tag))
      (then (return (call $put_integer (local.get $ctx) (i32.wrap_i64 (local.get $value))))))
    (if (call $is_text (local.get $value)) (then (return (call $put_string (local.get $ctx) (local.get $value)))))
    (if (i32.eq (local.get $tag) (i32.const -1))
      (then
        (if (i32.ge_u (local.get $depth) (i32.const 100)) (then (return (i32.const 0))))
        (local.set $class (call $JS_GetClassID (local.get $value)))
        (if (i32.eq (local.get $class) (i32.const 1))
          (then (return (call $put_object (local.get $ctx) (local.get $value) (local.get $depth)))))
        (if (i32.eq (local.get $class) (i32.const 2))
          (then (return (call $put_array (local.get $ctx) (local.get $value) (local.get $depth)))))
        (return (i32.const 0))))
    (if (i32.eq (local.get $tag) (i32.const 1))
      (then
        (if (i32.wrap_i64 (local.get $value))
          (then (return (call $put_word (local.get $ctx) (i64.const 0x65757274) (i32.const 4)))))
        (return (call $put_word (local.get $ctx) (i64.const 0x65736c6166) (i32.const 5)))))
    (if (i32.lt_u (local.get $tag) (i32.const 4)) (then (return (call $put_null (local.get $ctx)))))
    ;; -9 and 7 are BigInts.
    (if (i32.and (i32.ge_s (local.get $tag) (i32.const -8)) (i32.le_s (local.get $tag) (i32.const 6)))
      (then (return (i32.const 0))))
    (call $put_number (local.get $ctx) (local.get $value)))

  (func $put_array (param $ctx i32) (param $array i64) (param $depth i32) (result i32)
    (local $i i32)
    (local $length i64)
    (local $value i64)
    (local $plain i32)
    (if (i32.eqz (call $inherits (local.get $ctx) (local.get $array) (global.get $arrays) (i32.const 0)))
      (then (return (i32.const 0))))
    (if (call $has_own (local.get $ctx) (local.get $array) (i32.load offset=232 (global.get $state)))
      (then (return (i32.const 0))))
    (if (call $JS_GetLength (local.get $ctx) (local.get $array) (i32.add (global.get $state) (i32.const 136)))
      (then (call $drop_exception) (return (i32.const 0))))
    (local.set $length (i64.load offset=136 (global.get $state)))
    (if (i64.gt_u (local.get $length) (i64.extend_i32_u (global.get $visits))) (then (return (i32.const 0))))
    (if (i32.eqz (call $put_byte (local.get $ctx) (i32.const 0x5b))) (then (return (i32.const 0))))
    (block $done
      (loop $items
        (br_if $done (i32.ge_u (local.get $i) (i32.wrap_i64 (local.get $length))))
        (if (local.get $i)
          (then (if (i32.eqz (call $put_byte (local.get $ctx) (i32.const 0x2c))) (then (return (i32.const 0))))))
        ;; Atoms of integers below 2^31 are the integers, tagged.
        (if
          (i32.eqz
            (call $own_data (local.get $ctx) (local.get $array) (i32.or (local.get $i) (i32.const 0x80000000))))
          (then (return (i32.const 0))))
        (local.set $value (i64.load offset=208 (global.get $state)))
        (local.set $plain
          (call $put_value (local.get $ctx) (local.get $value) (i32.add (local.get $depth) (i32.const 1))))
        (call $JS_FreeValue (local.get $ctx) (local.get $value))
        (if (i32.eqz (local.get $plain)) (then (return (i32.const 0))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $items)))
    (call $put_byte (local.get $ctx) (i32.const 0x5d)))

  (func $put_object (param $ctx i32) (param $object i64) (param $depth i32) (result i32)
    (local $names i32)
    (local $count i32)
    (local $i i32)
    (local $plain i32)
    (local $start i32)
    (if (i32.eqz (call $inherits (local.get $ctx) (local.get $object) (global.get $objects) (i32.const 1)))
      (then (return (i32.const 0))))
    (if (call $has_own (local.get $ctx) (local.get $object) (i32.load offset=236 (global.get $state)))
      (then (return (i32.const 0))))
    (if (i32.eqz (call $put_byte (local.get $ctx) (i32.const 0x7b))) (then (return (i32.const 0))))
    ;; 1: strings, whether they are enumerable or not.
    (if
      (call $JS_GetOwnPropertyNames
        (local.get $ctx) (i32.add (global.get $state) (i32.const 144)) (i32.add (global.get $state) (i32.const 136))
        (local.get $object) (i32.const 1))
      (then (global.set $full (i32.const 1)) (return (i32.const 0))))
    (local.set $names (i32.load offset=144 (global.get $state)))
    (local.set $count (i32.load offset=136 (global.get $state)))
    (local.set $plain (i32.const 1))
    (local.set $start (global.get $size))
    (block $done
      (loop $members
        (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
        (local.set $plain
          (call $put_member
            (local.get $ctx)
            (local.get $object)
            ;; A name is 8 bytes: enumerable, atom.
            (i32.load offset=4 (i32.add (local.get $names) (i32.shl (local.get $i) (i32.const 3))))
            (i32.eq (global.get $size) (local.get $start))
            (i32.add (local.get $depth) (i32.const 1))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $members (local.get $plain))))
    (call $JS_FreePropertyEnum (local.get $ctx) (local.get $names) (local.get $count))
    (if (i32.eqz (local.get $plain)) (then (return (i32.const 0))))
    (call $put_byte (local.get $ctx) (i32.const 0x7d)))

  (func $put_member (param $ctx i32) (param $object i64) (param $atom i32) (param $first i32) (param $depth i32)
    (result i32)
    (local $value i64)
    (local $plain i32)
    (local $enumerable i32)
    (if (i32.eqz (call $own_data (local.get $ctx) (local.get $object) (local.get $atom))) (then (return (i32.const 0))))
    (local.set $enumerable (i32.and (i32.load offset=200 (global.get $state)) (i32.const 4)))
    (local.set $value (i64.load offset=208 (global.get $state)))
    (block $done
      (if (call $is_marked (local.get $ctx) (local.get $atom) (local.get $value)) (then (br $done)))
      ;; A function for toJSON counts though it is not enumerable; any other value that is not, as undefined, is left out.
      (if (i32.eqz (local.get $enumerable))
        (then
          (local.set $plain (i32.ne (local.get $atom) (i32.load offset=232 (global.get $state))))
          (br $done)))
      (if (i32.eq (call $tag (local.get $value)) (i32.const 3))
        (then (local.set $plain (i32.const 1)) (br $done)))
      (if (i32.eqz (local.get $first))
        (then (br_if $done (i32.eqz (call $put_byte (local.get $ctx) (i32.const 0x2c))))))
      (br_if $done (i32.eqz (call $put_name (local.get $ctx) (local.get $atom))))
      (local.set $plain (call $put_value (local.get $ctx) (local.get $value) (local.get $depth))))
    (call $JS_FreeValue (local.get $ctx) (local.get $value))
    (local.get $plain))

  ;; A string in `data` or `blob` that is too long.
  (func $is_marked (param $ctx i32) (param $atom i32) (param $value i64) (result i32)
    (if
      (i32.and
        (i32.ne (local.get $atom) (i32.load offset=240 (global.get $state)))
        (i32.ne (local.get $atom) (i32.load offset=244 (global.get $state))))
      (then (return (i32.const 0))))
    (if (i32.eqz (call $is_text (local.get $value))) (then (return (i32.const 0))))
    (drop (call $JS_GetLength (local.get $ctx) (local.get $value) (i32.add (global.get $state) (i32.const 136))))
    (i32.gt_u (i32.load offset=136 (global.get $state)) (global.get $most)))

  ;; The descriptor of an own property that has no getter, which is then at state + 200; its value is to be freed.
  (func $own_data (param $ctx i32) (param $object i64) (param $atom i32) (result i32)
    (if
      (i32.ne
        (call $JS_GetOwnProperty
          (local.get $ctx) (i32.add (global.get $state) (i32.const 200)) (local.get $object) (local.get $atom))
        (i32.const 1))
      (then (return (i32.const 0))))
    ;; A descriptor is flags, and at 8 value, getter and setter; flag 16 says that it has these, 4 enumerable.
    (if (i32.eqz (i32.and (i32.load offset=200 (global.get $state)) (i32.const 16))) (then (return (i32.const 1))))
    (call $JS_FreeValue (local.get $ctx) (i64.load offset=216 (global.get $state)))
    (call $JS_FreeValue (local.get $ctx) (i64.load offset=224 (global.get $state)))
    (i32.const 0))

  ;; Make room for `more` bytes.
  (func $reserve (param $ctx i32) (param $more i32) (result i32)
    (local $wanted i32)
    (local $moved i32)
    (local.set $wanted (i32.add (global.get $size) (local.get $more)))
    (if (i32.le_u (local.get $wanted) (global.get $capacity)) (then (return (i32.const 1))))
    (local.set $wanted (i32.add (local.get $wanted) (i32.add (i32.shr_u (local.get $wanted) (i32.const 1)) (i32.const 256))))
    (local.set $moved (call $js_realloc (local.get $ctx) (global.get $out) (local.get $wanted)))
    (if (i32.eqz (local.get $moved)) (then (global.set $full (i32.const 1)) (return (i32.const 0))))
    (global.set $out (local.get $moved))
    (global.set $capacity (local.get $wanted))
    (i32.const 1))

  (func $put_byte (param $ctx i32) (param $byte i32) (result i32)
    (if (i32.eqz (call $reserve (local.get $ctx) (i32.const 1))) (then (return (i32.const 0))))
    (call $write_byte (local.get $byte))
    (i32.const 1))

  ;; The same where there is room.
  (func $write_byte (param $byte i32)
    (i32.store8 (i32.add (global.get $out) (global.get $size)) (local.get $byte))
    (global.set $size (i32.add (global.get $size) (i32.const 1))))

  ;; At most 8 characters, the first in the lowest byte.
  (func $put_word (param $ctx i32) (param $word i64) (param $length i32) (result i32)
    (if (i32.eqz (call $reserve (local.get $ctx) (i32.const 8))) (then (return (i32.const 0))))
    (i64.store (i32.add (global.get $out) (global.get $size)) (local.get $word))
    (global.set $size (i32.add (global.get $size) (local.get $length)))
    (i32.const 1))

  (func $put_null (param $ctx i32) (result i32)
    (call $put_word (local.get $ctx) (i64.const 0x6c6c756e) (i32.const 4)))

  (func $put_integer (param $ctx i32) (param $value i32) (result i32)
    (local $rest i32)
    (local $end i32)
    (local $at i32)
    (if (i32.eqz (call $reserve (local.get $ctx) (i32.const 12))) (then (return (i32.const 0))))
    (if (i32.lt_s (local.get $value) (i32.const 0))
      (then
        (call $write_byte (i32.const 0x2d))
        (local.set $value (i32.sub (i32.const 0) (local.get $value)))))
    (local.set $rest (local.get $value))
    (loop $digits
      (global.set $size (i32.add (global.get $size) (i32.const 1)))
      (local.set $rest (i32.div_u (local.get $rest) (i32.const 10)))
      (br_if $digits (local.get $rest)))
    (local.set $at (i32.add (global.get $out) (global.get $size)))
    (loop $digits
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.rem_u (local.get $value) (i32.const 10)) (i32.const 0x30)))
      (local.set $value (i32.div_u (local.get $value) (i32.const 10)))
      (br_if $digits (local.get $value)))
    (i32.const 1))

  ;; A double or a BigInt.
  (func $put_number (param $ctx i32) (param $value i64) (result i32)
    (local $text i32)
    (local $length i32)
    (local $first i32)
    (local $tag i32)
    (local.set $text
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $value) (i32.const 0)))
    (if (i32.eqz (local.get $text)) (then (global.set $full (i32.const 1)) (return (i32.const 0))))
    (local.set $length (i32.load offset=136 (global.get $state)))
    (if
      (i32.or
        (i32.gt_u (local.get $length) (i32.const 4300))
        (i32.eqz (call $reserve (local.get $ctx) (i32.add (local.get $length) (i32.const 8)))))
      (then (call $JS_FreeCString (local.get $ctx) (local.get $text)) (return (i32.const 0))))
    (local.set $first (i32.load8_u (local.get $text)))
    (if (i32.eq (local.get $first) (i32.const 0x2d)) (then (local.set $first (i32.load8_u offset=1 (local.get $text)))))
    ;; NaN and Infinity begin with a letter.
    (if (i32.gt_u (local.get $first) (i32.const 0x39))
      (then (drop (call $put_null (local.get $ctx))))
      (else
        (memory.copy (i32.add (global.get $out) (global.get $size)) (local.get $text) (local.get $length))
        (global.set $size (i32.add (global.get $size) (local.get $length)))
        (local.set $tag (call $tag (local.get $value)))
        (if
          (i32.and
            (i32.eq (global.get $most) (i32.const 0x7fffffff))
            (i32.or (i32.lt_s (local.get $tag) (i32.const -9)) (i32.gt_s (local.get $tag) (i32.const 7))))
          (then
            (drop (call $JS_ToFloat64 (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $value)))
            (if (f64.ge (f64.abs (f64.load offset=136 (global.get $state))) (f64.const 0x1p53))
              (then (call $mark_exponent (local.get $length))))))))
    (call $JS_FreeCString (local.get $ctx) (local.get $text))
    (i32.const 1))

  ;; Write the number that was written last, and has `length` characters, with an E: `e` becomes that, else E0 is added.
  ;; There is room for it.
  (func $mark_exponent (param $length i32)
    (local $at i32)
    (local.set $at (i32.sub (i32.add (global.get $out) (global.get $size)) (local.get $length)))
    (loop $each
      (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x65))
        (then (i32.store8 (local.get $at) (i32.const 0x45)) (return)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $each (i32.lt_u (local.get $at) (i32.add (global.get $out) (global.get $size)))))
    (call $write_byte (i32.const 0x45))
    (call $write_byte (i32.const 0x30)))

  (func $put_string (param $ctx i32) (param $value i64) (result i32)
    (call $put_text (local.get $ctx)
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $value) (i32.const 0))))

  (func $put_name (param $ctx i32) (param $atom i32) (result i32)
    (if
      (i32.eqz
        (call $put_text (local.get $ctx)
          (call $JS_AtomToCStringLen
            (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $atom))))
      (then (return (i32.const 0))))
    (call $put_byte (local.get $ctx) (i32.const 0x3a)))

  ;; A text in quotes, which is freed; its size is at state + 136. Halves of surrogate pairs are three bytes in it.
  (func $put_text (param $ctx i32) (param $text i32) (result i32)
    (local $at i32)
    (local $end i32)
    (local $stop i32)
    (local $byte i32)
    (local $sixteen v128)
    (if (i32.eqz (local.get $text)) (then (global.set $full (i32.const 1)) (return (i32.const 0))))
    (local.set $at (local.get $text))
    (local.set $end (i32.add (local.get $text) (i32.load offset=136 (global.get $state))))
    (block $done
      (br_if $done (i32.eqz (call $put_byte (local.get $ctx) (i32.const 0x22))))
      (block $written
        (loop $chunks
          (br_if $written (i32.ge_u (local.get $at) (local.get $end)))
          ;; Sixteen bytes make at most 6 times as many, and the quote.
          (br_if $done (i32.eqz (call $reserve (local.get $ctx) (i32.const 112))))
          (local.set $stop (i32.add (local.get $at) (i32.const 16)))
          (if (i32.le_u (local.get $stop) (local.get $end))
            (then
              (local.set $sixteen (v128.load (local.get $at)))
              (if
                (i32.eqz
                  (v128.any_true
                    (v128.or
                      (v128.or
                        (i8x16.lt_u (local.get $sixteen) (v128.const i8x16 32 32 32 32 32 32 32 32 32 32 32 32 32 32 32 32))
                        (i8x16.eq (local.get $sixteen) (v128.const i8x16 34 34 34 34 34 34 34 34 34 34 34 34 34 34 34 34)))
                      (v128.or
                        (i8x16.eq (local.get $sixteen) (v128.const i8x16 92 92 92 92 92 92 92 92 92 92 92 92 92 92 92 92))
                        (i8x16.eq
                          (local.get $sixteen)
                          (v128.const i8x16 237 237 237 237 237 237 237 237 237 237 237 237 237 237 237 237))))))
                (then
                  (v128.store (i32.add (global.get $out) (global.get $size)) (local.get $sixteen))
                  (global.set $size (i32.add (global.get $size) (i32.const 16)))
                  (local.set $at (local.get $stop))
                  (br $chunks))))
            (else (local.set $stop (local.get $end))))
          (loop $bytes
            (local.set $byte (i32.load8_u (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (if
              (i32.or (i32.eq (local.get $byte) (i32.const 34)) (i32.eq (local.get $byte) (i32.const 92)))
              (then
                (call $write_byte (i32.const 92))
                (call $write_byte (local.get $byte)))
              (else
                (if (i32.lt_u (local.get $byte) (i32.const 32))
                  (then (call $write_control (local.get $byte)))
                  (else
                    (if
                      (i32.and
                        (i32.eq (local.get $byte) (i32.const 0xed))
                        (i32.ge_u (i32.load8_u (local.get $at)) (i32.const 0xa0)))
                      (then
                        (call $write_unit
                          (i32.or
                            (i32.const 0xd000)
                            (i32.or
                              (i32.shl (i32.and (i32.load8_u (local.get $at)) (i32.const 63)) (i32.const 6))
                              (i32.and (i32.load8_u offset=1 (local.get $at)) (i32.const 63)))))
                        (local.set $at (i32.add (local.get $at) (i32.const 2))))
                      (else (call $write_byte (local.get $byte))))))))
            (br_if $bytes (i32.lt_u (local.get $at) (local.get $stop))))
          (br $chunks)))
      (call $JS_FreeCString (local.get $ctx) (local.get $text))
      (return (call $put_byte (local.get $ctx) (i32.const 0x22))))
    (call $JS_FreeCString (local.get $ctx) (local.get $text))
    (i32.const 0))

  (func $write_control (param $byte i32)
    (local $letter i32)
    (local.set $letter
      (i32.or
        (i32.or
          (select (i32.const 0x62) (i32.const 0) (i32.eq (local.get $byte) (i32.const 8)))
          (select (i32.const 0x74) (i32.const 0) (i32.eq (local.get $byte) (i32.const 9))))
        (i32.or
          (i32.or
            (select (i32.const 0x6e) (i32.const 0) (i32.eq (local.get $byte) (i32.const 10)))
            (select (i32.const 0x66) (i32.const 0) (i32.eq (local.get $byte) (i32.const 12))))
          (select (i32.const 0x72) (i32.const 0) (i32.eq (local.get $byte) (i32.const 13))))))
    (if (local.get $letter)
      (then
        (call $write_byte (i32.const 92))
        (call $write_byte (local.get $letter)))
      (else (call $write_unit (local.get $byte)))))

  ;; An escape of a code unit.
  (func $write_unit (param $unit i32)
    (local $shift i32)
    (call $write_byte (i32.const 92))
    (call $write_byte (i32.const 0x75))
    (local.set $shift (i32.const 16))
    (loop $digits
      (local.set $shift (i32.sub (local.get $shift) (i32.const 4)))
      (call $write_byte (call $hex_digit (i32.shr_u (local.get $unit) (local.get $shift))))
      (br_if $digits (local.get $shift))))

  (func $hex_digit (param $number i32) (result i32)
    (local.set $number (i32.and (local.get $number) (i32.const 15)))
    (i32.add (local.get $number) (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $number) (i32.const 9)))))

  ;; setCollation(table), a Uint8Array: two elements for each character of $entry, 32 bits each. An element is letter (18
  ;; bits), accent (13) and case (1), in the order of their weight; 0 is none, all ones that only the prelude can tell.
  (func $set_collation (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $bytes i32)
    (local $table i32)
    (local.set $bytes
      (call $JS_GetUint8Array
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (local.set $table (call $js_malloc (local.get $ctx) (i32.load offset=136 (global.get $state))))
    (memory.copy (local.get $table) (local.get $bytes) (i32.load offset=136 (global.get $state)))
    (i32.store offset=248 (global.get $state) (local.get $table))
    (call $undefined))

  ;; The place in the table of a character's elements, or 0: up to U+052F, from U+2000 to U+20CF, from U+3000 to U+30FF.
  (func $entry (param $character i32) (result i32)
    (local $index i32)
    (local.set $index (local.get $character))
    (block $found
      (br_if $found (i32.lt_u (local.get $character) (i32.const 0x530)))
      (local.set $index (i32.sub (local.get $character) (i32.const 0x1ad0)))
      (br_if $found (i32.lt_u (i32.sub (local.get $character) (i32.const 0x2000)) (i32.const 0xd0)))
      (local.set $index (i32.sub (local.get $character) (i32.const 0x2a00)))
      (br_if $found (i32.lt_u (i32.sub (local.get $character) (i32.const 0x3000)) (i32.const 0x100)))
      (return (i32.const 0)))
    (i32.add (i32.load offset=248 (global.get $state)) (i32.shl (local.get $index) (i32.const 3))))

  ;; The element of a letter that is in no table: it comes by its code, behind those that are.
  (func $by_code (param $unit i32) (result i32)
    (i32.shl (i32.add (i32.const 0x20040) (local.get $unit)) (i32.const 14)))

  ;; The next element of a text, 0 at its end, -1 where only the prelude can tell. `cursor`: 0 next byte, 4 end, 8 and 12
  ;; elements that come first.
  (func $next_element (param $cursor i32) (result i32)
    (local $at i32)
    (local $byte i32)
    (local $size i32)
    (local $entry i32)
    (local $element i32)
    (loop $again
      (local.set $element (i32.load offset=8 (local.get $cursor)))
      (if (local.get $element)
        (then
          (i64.store offset=8 (local.get $cursor) (i64.extend_i32_u (i32.load offset=12 (local.get $cursor))))
          (return (local.get $element))))
      (local.set $at (i32.load (local.get $cursor)))
      (if (i32.ge_u (local.get $at) (i32.load offset=4 (local.get $cursor))) (then (return (i32.const 0))))
      (local.set $byte (i32.load8_u (local.get $at)))
      (local.set $size (i32.const 1))
      (if (i32.ge_u (local.get $byte) (i32.const 0x80))
        (then
          (if (i32.ge_u (local.get $byte) (i32.const 0xf0))
            (then
              (local.set $byte
                (i32.or
                  (i32.or
                    (i32.shl (i32.and (local.get $byte) (i32.const 7)) (i32.const 18))
                    (i32.shl (i32.and (i32.load8_u offset=1 (local.get $at)) (i32.const 63)) (i32.const 12)))
                  (i32.or
                    (i32.shl (i32.and (i32.load8_u offset=2 (local.get $at)) (i32.const 63)) (i32.const 6))
                    (i32.and (i32.load8_u offset=3 (local.get $at)) (i32.const 63)))))
              (local.set $size (i32.const 4)))
            (else
              (if (i32.ge_u (local.get $byte) (i32.const 0xe0))
                (then
                  (local.set $byte
                    (i32.or
                      (i32.shl (i32.and (local.get $byte) (i32.const 15)) (i32.const 12))
                      (i32.or
                        (i32.shl (i32.and (i32.load8_u offset=1 (local.get $at)) (i32.const 63)) (i32.const 6))
                        (i32.and (i32.load8_u offset=2 (local.get $at)) (i32.const 63)))))
                  (local.set $size (i32.const 3)))
                (else
                  (local.set $byte
                    (i32.or
                      (i32.shl (i32.and (local.get $byte) (i32.const 31)) (i32.const 6))
                      (i32.and (i32.load8_u offset=1 (local.get $at)) (i32.const 63))))
                  (local.set $size (i32.const 2))))))))
      (i32.store (local.get $cursor) (i32.add (local.get $at) (local.get $size)))
      (local.set $entry (call $entry (local.get $byte)))
      (if (local.get $entry)
        (then
          (local.set $element (i32.load (local.get $entry)))
          (i32.store offset=8 (local.get $cursor) (i32.load offset=4 (local.get $entry)))
          (br_if $again (i32.eqz (local.get $element)))
          (return (local.get $element))))
      ;; Chinese.
      (if (i32.lt_u (i32.sub (local.get $byte) (i32.const 0x4e00)) (i32.const 0x5200))
        (then (return (call $by_code (local.get $byte)))))
      ;; Korean: a syllable is two or three letters.
      (local.set $size (i32.sub (local.get $byte) (i32.const 0xac00)))
      (if (i32.lt_u (local.get $size) (i32.const 11172))
        (then
          (i32.store offset=8 (local.get $cursor)
            (call $by_code
              (i32.add
                (i32.const 0x1161)
                (i32.div_u (i32.rem_u (local.get $size) (i32.const 588)) (i32.const 28)))))
          (if (i32.rem_u (local.get $size) (i32.const 28))
            (then
              (i32.store offset=12 (local.get $cursor)
                (call $by_code (i32.add (i32.const 0x11a7) (i32.rem_u (local.get $size) (i32.const 28)))))))
          (return (call $by_code (i32.add (i32.const 0x1100) (i32.div_u (local.get $size) (i32.const 588)))))))
      ;; Emoji, as the two code units that they are: the first is a symbol.
      (local.set $size (i32.sub (local.get $byte) (i32.const 0x10000)))
      (if (i32.lt_u (i32.sub (local.get $byte) (i32.const 0x1f000)) (i32.const 0xc00))
        (then
          (i32.store offset=8 (local.get $cursor)
            (call $by_code (i32.or (i32.const 0xdc00) (i32.and (local.get $size) (i32.const 0x3ff)))))
          (return
            (i32.shl
              (i32.add (i32.const 0xe800) (i32.shr_u (local.get $size) (i32.const 10)))
              (i32.const 14))))))
    (i32.const -1))

  ;; compare(a, b), two strings: -1, 0 or 1, as the prelude's `compareFully` has it; undefined where only that can tell.
  (func $compare (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $a i32)
    (local $b i32)
    (local $order i32)
    (local.set $a
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 260)) (i64.load (local.get $argv)) (i32.const 0)))
    (if (i32.eqz (local.get $a)) (then (return (call $exception))))
    (local.set $b
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 276)) (call $argument (local.get $argv) (i32.const 1))
        (i32.const 0)))
    (if (i32.eqz (local.get $b))
      (then (call $JS_FreeCString (local.get $ctx) (local.get $a)) (return (call $exception))))
    (local.set $order
      (call $order
        (local.get $a) (i32.load offset=260 (global.get $state)) (local.get $b) (i32.load offset=276 (global.get $state))))
    (call $JS_FreeCString (local.get $ctx) (local.get $a))
    (call $JS_FreeCString (local.get $ctx) (local.get $b))
    (if (i32.eq (local.get $order) (i32.const 2)) (then (return (call $undefined))))
    (i64.extend_i32_u (local.get $order)))

  ;; 2 for what only the prelude can tell.
  (func $order (param $a i32) (param $a_size i32) (param $b i32) (param $b_size i32) (result i32)
    (local $shared i32)
    (local $shorter i32)
    (local $one i32)
    (local $other i32)
    (local $by_accent i32)
    (local $by_case i32)
    (local $difference i32)
    ;; What both begin with decides nothing.
    (local.set $shorter (select (local.get $a_size) (local.get $b_size) (i32.lt_u (local.get $a_size) (local.get $b_size))))
    (block $different
      (loop $same
        (br_if $different (i32.gt_u (i32.add (local.get $shared) (i32.const 8)) (local.get $shorter)))
        (br_if $different
          (i64.ne
            (i64.load (i32.add (local.get $a) (local.get $shared)))
            (i64.load (i32.add (local.get $b) (local.get $shared)))))
        (local.set $shared (i32.add (local.get $shared) (i32.const 8)))
        (br $same)))
    (block $different
      (loop $same
        (br_if $different (i32.ge_u (local.get $shared) (local.get $shorter)))
        (br_if $different
          (i32.ne
            (i32.load8_u (i32.add (local.get $a) (local.get $shared)))
            (i32.load8_u (i32.add (local.get $b) (local.get $shared)))))
        (local.set $shared (i32.add (local.get $shared) (i32.const 1)))
        (br $same)))
    ;; Back to where a character begins, in both.
    (block $begins
      (loop $back
        (br_if $begins (i32.eqz (local.get $shared)))
        (br_if $begins
          (i32.eqz
            (i32.or
              (call $continues (local.get $a) (local.get $a_size) (local.get $shared))
              (call $continues (local.get $b) (local.get $b_size) (local.get $shared)))))
        (local.set $shared (i32.sub (local.get $shared) (i32.const 1)))
        (br $back)))
    (i32.store offset=256 (global.get $state) (i32.add (local.get $a) (local.get $shared)))
    (i32.store offset=260 (global.get $state) (i32.add (local.get $a) (local.get $a_size)))
    (i64.store offset=264 (global.get $state) (i64.const 0))
    (i32.store offset=272 (global.get $state) (i32.add (local.get $b) (local.get $shared)))
    (i32.store offset=276 (global.get $state) (i32.add (local.get $b) (local.get $b_size)))
    (i64.store offset=280 (global.get $state) (i64.const 0))
    (loop $elements
      (local.set $one (call $next_element (i32.add (global.get $state) (i32.const 256))))
      (local.set $other (call $next_element (i32.add (global.get $state) (i32.const 272))))
      (if (i32.or (i32.eq (local.get $one) (i32.const -1)) (i32.eq (local.get $other) (i32.const -1)))
        (then (return (i32.const 2))))
      (if (i32.eq (local.get $one) (local.get $other))
        (then
          (br_if $elements (local.get $one))
          (return (select (local.get $by_accent) (local.get $by_case) (local.get $by_accent)))))
      (local.set $difference (select (i32.const 1) (i32.const -1) (i32.gt_u (local.get $one) (local.get $other))))
      (if (i32.ne (i32.shr_u (local.get $one) (i32.const 14)) (i32.shr_u (local.get $other) (i32.const 14)))
        (then
          ;; The rest may have what only the prelude can tell, but it would not change this.
          (return (local.get $difference))))
      (if (i32.ne (i32.shr_u (local.get $one) (i32.const 1)) (i32.shr_u (local.get $other) (i32.const 1)))
        (then (if (i32.eqz (local.get $by_accent)) (then (local.set $by_accent (local.get $difference)))))
        (else (if (i32.eqz (local.get $by_case)) (then (local.set $by_case (local.get $difference))))))
      (br $elements))
    (unreachable))

  (func $continues (param $text i32) (param $size i32) (param $at i32) (result i32)
    (if (i32.ge_u (local.get $at) (local.get $size)) (then (return (i32.const 0))))
    (i32.eq (i32.and (i32.load8_u (i32.add (local.get $text) (local.get $at))) (i32.const 0xc0)) (i32.const 0x80)))

  ;; grouped(digits): with a comma before each three but the first. A minus sign stays before them.
  (func $grouped (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (call $with_commas (local.get $ctx) (i64.load (local.get $argv))))

  (func $with_commas (param $ctx i32) (param $number i64) (result i64)
    (local $digits i32)
    (local $end i32)
    (local $from i32)
    (local $text i32)
    (local $left i32)
    (local $to i32)
    (local $value i64)
    (local.set $digits
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $number) (i32.const 0)))
    (if (i32.eqz (local.get $digits)) (then (return (call $exception))))
    (local.set $left (i32.load offset=136 (global.get $state)))
    (local.set $end (i32.add (local.get $digits) (local.get $left)))
    (local.set $text (call $js_malloc (local.get $ctx) (i32.add (i32.shl (local.get $left) (i32.const 1)) (i32.const 1))))
    (local.set $value (call $exception))
    (if (local.get $text)
      (then
        (local.set $to (local.get $text))
        (local.set $from (local.get $digits))
        (block $done
          (br_if $done (i32.eqz (local.get $left)))
          (if (i32.eq (i32.load8_u (local.get $from)) (i32.const 0x2d))
            (then
              (i32.store8 (local.get $to) (i32.const 0x2d))
              (local.set $to (i32.add (local.get $to) (i32.const 1)))
              (local.set $from (i32.add (local.get $from) (i32.const 1)))
              (local.set $left (i32.sub (local.get $left) (i32.const 1)))))
          (loop $each
            (br_if $done (i32.eqz (local.get $left)))
            (i32.store8 (local.get $to) (i32.load8_u (local.get $from)))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (local.set $from (i32.add (local.get $from) (i32.const 1)))
            (local.set $left (i32.sub (local.get $end) (local.get $from)))
            (br_if $each (i32.rem_u (local.get $left) (i32.const 3)))
            (br_if $done (i32.eqz (local.get $left)))
            (i32.store8 (local.get $to) (i32.const 0x2c))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (br $each)))
        (local.set $value
          (call $JS_NewStringLen (local.get $ctx) (local.get $text) (i32.sub (local.get $to) (local.get $text))))
        (call $js_free (local.get $ctx) (local.get $text))))
    (call $JS_FreeCString (local.get $ctx) (local.get $digits))
    (local.get $value))

  ;; dateText(milliseconds, parts), of a valid time in UTC as en-US has it: 1 the day, 2 the time of the day, 3 both.
  (func $date_text (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $parts i32)
    (local $seconds i64)
    (local $days i64)
    (local $era i64)
    (local $year i64)
    (local $month i32)
    (local $rest i32)
    (local $clock i32)
    (local $hour i32)
    (drop
      (call $JS_ToFloat64
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv))))
    (drop
      (call $JS_ToInt32
        (local.get $ctx) (i32.add (global.get $state) (i32.const 144)) (call $argument (local.get $argv) (i32.const 1))))
    (local.set $parts (i32.load offset=144 (global.get $state)))
    (local.set $seconds
      (i64.trunc_sat_f64_s (f64.floor (f64.div (f64.load offset=136 (global.get $state)) (f64.const 1000)))))
    (local.set $clock (i32.wrap_i64 (i64.rem_s (local.get $seconds) (i64.const 86400))))
    (if (i32.lt_s (local.get $clock) (i32.const 0))
      (then (local.set $clock (i32.add (local.get $clock) (i32.const 86400)))))
    (local.set $days
      (i64.div_s (i64.sub (local.get $seconds) (i64.extend_i32_s (local.get $clock))) (i64.const 86400)))
    (global.set $out (i32.add (global.get $state) (i32.const 160)))
    (global.set $size (i32.const 0))
    (if (i32.and (local.get $parts) (i32.const 1))
      (then
        ;; Days from 1 March of the year 0 of an era of 400 years, so that a leap day is the last of a year.
        (local.set $days (i64.add (local.get $days) (i64.const 719468)))
        (local.set $era
          (i64.div_s
            (select
              (local.get $days) (i64.sub (local.get $days) (i64.const 146096))
              (i64.ge_s (local.get $days) (i64.const 0)))
            (i64.const 146097)))
        (local.set $rest
          (i32.wrap_i64 (i64.sub (local.get $days) (i64.mul (local.get $era) (i64.const 146097)))))
        (local.set $year
          (i64.extend_i32_u
            (i32.div_u
              (i32.sub
                (i32.add
                  (i32.sub (local.get $rest) (i32.div_u (local.get $rest) (i32.const 1460)))
                  (i32.div_u (local.get $rest) (i32.const 36524)))
                (i32.div_u (local.get $rest) (i32.const 146096)))
              (i32.const 365))))
        (local.set $rest
          (i32.sub
            (local.get $rest)
            (i32.wrap_i64
              (i64.sub
                (i64.add
                  (i64.mul (local.get $year) (i64.const 365))
                  (i64.div_u (local.get $year) (i64.const 4)))
                (i64.div_u (local.get $year) (i64.const 100))))))
        (local.set $month (i32.div_u (i32.add (i32.mul (local.get $rest) (i32.const 5)) (i32.const 2)) (i32.const 153)))
        (local.set $rest
          (i32.add
            (i32.sub
              (local.get $rest)
              (i32.div_u (i32.add (i32.mul (local.get $month) (i32.const 153)) (i32.const 2)) (i32.const 5)))
            (i32.const 1)))
        (local.set $month
          (i32.add (local.get $month) (select (i32.const 3) (i32.const -9) (i32.lt_u (local.get $month) (i32.const 10)))))
        (local.set $year
          (i64.add
            (i64.add (local.get $year) (i64.mul (local.get $era) (i64.const 400)))
            (i64.extend_i32_u (i32.le_u (local.get $month) (i32.const 2)))))
        ;; The year before 1 is 1 again, of the era before.
        (if (i64.le_s (local.get $year) (i64.const 0))
          (then (local.set $year (i64.sub (i64.const 1) (local.get $year)))))
        (call $write_number (local.get $month))
        (call $write_byte (i32.const 0x2f))
        (call $write_number (local.get $rest))
        (call $write_byte (i32.const 0x2f))
        (call $write_number (i32.wrap_i64 (local.get $year)))))
    (if (i32.eq (local.get $parts) (i32.const 3))
      (then
        (call $write_byte (i32.const 0x2c))
        (call $write_byte (i32.const 0x20))))
    (if (i32.and (local.get $parts) (i32.const 2))
      (then
        (local.set $hour (i32.div_u (local.get $clock) (i32.const 3600)))
        (local.set $rest (i32.rem_u (local.get $hour) (i32.const 12)))
        (call $write_number (select (local.get $rest) (i32.const 12) (local.get $rest)))
        (call $write_byte (i32.const 0x3a))
        (call $write_two (i32.rem_u (i32.div_u (local.get $clock) (i32.const 60)) (i32.const 60)))
        (call $write_byte (i32.const 0x3a))
        (call $write_two (i32.rem_u (local.get $clock) (i32.const 60)))
        (call $write_byte (i32.const 0x20))
        (call $write_byte (select (i32.const 0x41) (i32.const 0x50) (i32.lt_u (local.get $hour) (i32.const 12))))
        (call $write_byte (i32.const 0x4d))))
    (call $JS_NewStringLen (local.get $ctx) (global.get $out) (global.get $size)))

  (func $write_number (param $number i32)
    (if (i32.ge_u (local.get $number) (i32.const 10))
      (then (call $write_number (i32.div_u (local.get $number) (i32.const 10)))))
    (call $write_byte (i32.add (i32.rem_u (local.get $number) (i32.const 10)) (i32.const 0x30))))

  (func $write_two (param $number i32)
    (if (i32.lt_u (local.get $number) (i32.const 10)) (then (call $write_byte (i32.const 0x30))))
    (call $write_number (local.get $number)))

  ;; setFunction(n, function): functions that natives call. By their number: 0 and 1 the engine's `next` and `return` of
  ;; iterator helpers; 2 and 3 the prelude's toLocaleString of numbers and of BigInts; 4 runs a microtask; 5
  ;; the engine's JSON.parse, 6 the prelude's explanation of an error of that; 7 Promise; and for the hooks: 12
  ;; translates a pattern, 13 parses a date, 14 adds the zone to the text of one, 15 and 16 are getter and setter of
  ;; `stack`, 17 keeps the target of a WeakRef, 18 is the message of Promise.any, 19 the engine's setTime, 20 Object.
  (func $set_function (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (i64.store offset=288
      (i32.add (global.get $state) (i32.shl (i32.wrap_i64 (i64.load (local.get $argv))) (i32.const 3)))
      (call $JS_DupValue (local.get $ctx) (call $argument (local.get $argv) (i32.const 1))))
    (call $undefined))

  (func $function (param $n i32) (result i64)
    (i64.load offset=288 (i32.add (global.get $state) (i32.shl (local.get $n) (i32.const 3)))))

  ;; Iterator helpers. The engine calls its own `next` of them without looking at its stack, so that a long chain of
  ;; helpers would run through the end of it. Ours looks, and then calls that as the engine does, which spares an object
  ;; for each step. `JS_Call` looks too, and comes to the same conclusion: it throws.
  (type $iterator_next (func (param i32 i64 i32 i32 i32 i32) (result i64)))

  (func $helper_next (type $iterator_next)
    (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (param $done i32) (param $magic i32) (result i64)
    (if (i32.le_u (global.get $stack_pointer) (i32.load offset=360 (global.get $state)))
      (then
        (if
          (i32.eqz
            (call $is_exception
              (call $JS_Call
                (local.get $ctx) (call $function (i32.const 0)) (local.get $this) (i32.const 0) (i32.const 0))))
          (then (unreachable)))
        (return (call $exception))))
    (call_indirect (type $iterator_next)
      (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (local.get $done) (local.get $magic)
      (i32.load offset=364 (global.get $state))))

  ;; The engine's own `return` calls that of the iterator that a helper is made of, and throws where this has none, as
  ;; iterators of lists have none. Such a helper is done when the engine is asked.
  ;; A helper's data: 0 its iterator, 24 the iterator within of flatMap, 40 its kind (4 flatMap), 41 flags: 1 it is running,
  ;; 2 it is done.
  (func $helper_return (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $data i32)
    (local.set $data (call $JS_GetAnyOpaque (local.get $this) (i32.add (global.get $state) (i32.const 136))))
    (if
      (i32.and
        (i32.ne (local.get $data) (i32.const 0))
        (i32.eq (i32.load offset=136 (global.get $state)) (i32.load offset=372 (global.get $state))))
      (then
        (if (i32.eqz (i32.and (i32.load8_u offset=41 (local.get $data)) (i32.const 3)))
          (then
            (if (call $lacks_return (local.get $ctx) (i64.load (local.get $data)))
              (then
                (if (call $close_within (local.get $ctx) (local.get $data)) (then (return (call $exception))))))))))
    (call $JS_Call (local.get $ctx) (call $function (i32.const 1)) (local.get $this) (i32.const 0) (i32.const 0)))

  ;; Nothing of the program's runs to find out: of a proxy it is for the engine to ask.
  (func $lacks_return (param $ctx i32) (param $iterator i64) (result i32)
    (if (call $JS_IsProxy (local.get $iterator)) (then (return (i32.const 0))))
    (i32.eqz
      (call $JS_HasProperty (local.get $ctx) (local.get $iterator) (i32.load offset=376 (global.get $state)))))

  ;; End a helper whose iterator has no `return`: that of flatMap's iterator within is called first. 1 when it threw.
  (func $close_within (param $ctx i32) (param $data i32) (result i32)
    (local $within i64)
    (local $method i64)
    (local $result i64)
    (local.set $within (i64.load offset=24 (local.get $data)))
    (local.set $result (call $undefined))
    (if
      (i32.and
        (i32.eq (i32.load8_u offset=40 (local.get $data)) (i32.const 4))
        (i32.eq (call $tag (local.get $within)) (i32.const -1)))
      (then
        (i32.store8 offset=41 (local.get $data) (i32.or (i32.load8_u offset=41 (local.get $data)) (i32.const 1)))
        (local.set $method
          (call $JS_GetProperty (local.get $ctx) (local.get $within) (i32.load offset=376 (global.get $state))))
        (local.set $result (local.get $method))
        (if (i32.eqz (i32.lt_u (i32.sub (call $tag (local.get $method)) (i32.const 2)) (i32.const 2)))
          (then
            (if (i32.eqz (call $is_exception (local.get $method)))
              (then
                (local.set $result
                  (call $JS_Call (local.get $ctx) (local.get $method) (local.get $within) (i32.const 0) (i32.const 0)))
                (call $JS_FreeValue (local.get $ctx) (local.get $method))))))
        (i32.store8 offset=41 (local.get $data) (i32.and (i32.load8_u offset=41 (local.get $data)) (i32.const 0xfe)))))
    (i32.store8 offset=41 (local.get $data) (i32.or (i32.load8_u offset=41 (local.get $data)) (i32.const 2)))
    (if (call $is_exception (local.get $result)) (then (return (i32.const 1))))
    (call $JS_FreeValue (local.get $ctx) (local.get $result))
    (i32.const 0))

  ;; toLocaleString(locales, options) of numbers and BigInts. What takes more than the common case is for the prelude: any
  ;; locale or option, and a `this` that is another value.

  ;; One of the first two arguments is not undefined.
  (func $asks (param $argc i32) (param $argv i32) (result i32)
    (if (i32.eqz (local.get $argc)) (then (return (i32.const 0))))
    (if (i64.ne (i64.load (local.get $argv)) (call $undefined)) (then (return (i32.const 1))))
    (if (i32.eq (local.get $argc) (i32.const 1)) (then (return (i32.const 0))))
    (i64.ne (i64.load offset=8 (local.get $argv)) (call $undefined)))

  (func $number_text (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $tag i32)
    (local $number f64)
    (local.set $tag (call $tag (local.get $this)))
    (block $more
      (br_if $more (call $asks (local.get $argc) (local.get $argv)))
      (br_if $more
        (i32.and
          (i32.ne (local.get $tag) (i32.const 0))
          (i32.and (i32.ge_s (local.get $tag) (i32.const -9)) (i32.le_s (local.get $tag) (i32.const 7)))))
      (br_if $more
        (call $JS_ToFloat64 (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $this)))
      (local.set $number (f64.load offset=136 (global.get $state)))
      (global.set $out (i32.add (global.get $state) (i32.const 160)))
      (global.set $size (i32.const 0))
      (if (i64.lt_s (i64.reinterpret_f64 (local.get $number)) (i64.const 0)) (then (call $write_byte (i32.const 0x2d))))
      (local.set $number (f64.abs (local.get $number)))
      (if
        (i32.and
          (f64.lt (local.get $number) (f64.const 0x1p53))
          (f64.eq (local.get $number) (f64.floor (local.get $number))))
        (then (call $write_grouped (i64.trunc_f64_u (local.get $number))))
        (else (br_if $more (i32.eqz (call $write_fraction (local.get $ctx) (local.get $this))))))
      (return (call $JS_NewStringLen (local.get $ctx) (global.get $out) (global.get $size))))
    (call $JS_Call
      (local.get $ctx) (call $function (i32.const 2)) (local.get $this) (local.get $argc) (local.get $argv)))

  ;; The shortest decimals of a number that is not whole or is large, rounded to three of them, without its sign. 0 for
  ;; what has an exponent, for more than 19 digits before the point, and for what is no number.
  (func $write_fraction (param $ctx i32) (param $number i64) (result i32)
    (local $text i32)
    (local $at i32)
    (local $end i32)
    (local $digit i32)
    (local $digits i32)
    (local $places i32)
    (local $whole i64)
    (local $rest i32)
    (local.set $text
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $number) (i32.const 0)))
    (if (i32.eqz (local.get $text)) (then (call $drop_exception) (return (i32.const 0))))
    (local.set $at (local.get $text))
    (local.set $end (i32.add (local.get $text) (i32.load offset=136 (global.get $state))))
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2d))
      (then (local.set $at (i32.add (local.get $at) (i32.const 1)))))
    ;; At the end of the text is a 0, which is no digit.
    (block $point
      (loop $each
        (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30)))
        (br_if $point (i32.gt_u (local.get $digit) (i32.const 9)))
        (local.set $whole
          (i64.add (i64.mul (local.get $whole) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
        (local.set $digits (i32.add (local.get $digits) (i32.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $each)))
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2e))
      (then
        (block $over
          (loop $each
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30)))
            (br_if $over (i32.gt_u (local.get $digit) (i32.const 9)))
            (local.set $places (i32.add (local.get $places) (i32.const 1)))
            (if (i32.le_u (local.get $places) (i32.const 3))
              (then (local.set $rest (i32.add (i32.mul (local.get $rest) (i32.const 10)) (local.get $digit))))
              (else
                (if (i32.eq (local.get $places) (i32.const 4))
                  (then (local.set $rest (i32.add (local.get $rest) (i32.gt_u (local.get $digit) (i32.const 4))))))))
            (br $each)))
        (loop $fill
          (if (i32.lt_u (local.get $places) (i32.const 3))
            (then
              (local.set $rest (i32.mul (local.get $rest) (i32.const 10)))
              (local.set $places (i32.add (local.get $places) (i32.const 1)))
              (br $fill))))))
    (call $JS_FreeCString (local.get $ctx) (local.get $text))
    (if
      (i32.or
        (i32.ne (local.get $at) (local.get $end))
        (i32.gt_u (i32.sub (local.get $digits) (i32.const 1)) (i32.const 18)))
      (then (return (i32.const 0))))
    (if (i32.eq (local.get $rest) (i32.const 1000))
      (then
        (local.set $whole (i64.add (local.get $whole) (i64.const 1)))
        (local.set $rest (i32.const 0))))
    (call $write_grouped (local.get $whole))
    (if (local.get $rest)
      (then
        (call $write_byte (i32.const 0x2e))
        (call $write_number (i32.div_u (local.get $rest) (i32.const 100)))
        (local.set $rest (i32.rem_u (local.get $rest) (i32.const 100)))
        (if (local.get $rest)
          (then
            (call $write_number (i32.div_u (local.get $rest) (i32.const 10)))
            (local.set $rest (i32.rem_u (local.get $rest) (i32.const 10)))
            (if (local.get $rest) (then (call $write_number (local.get $rest))))))))
    (i32.const 1))

  ;; A number with a comma before each three digits but the first.
  (func $write_grouped (param $number i64)
    (local $three i32)
    (if (i64.lt_u (local.get $number) (i64.const 1000))
      (then (call $write_number (i32.wrap_i64 (local.get $number))) (return)))
    (call $write_grouped (i64.div_u (local.get $number) (i64.const 1000)))
    (call $write_byte (i32.const 0x2c))
    (local.set $three (i32.wrap_i64 (i64.rem_u (local.get $number) (i64.const 1000))))
    (call $write_number (i32.div_u (local.get $three) (i32.const 100)))
    (call $write_two (i32.rem_u (local.get $three) (i32.const 100))))

  (func $big_int_text (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $tag i32)
    (local.set $tag (call $tag (local.get $this)))
    (if
      (i32.and
        (i32.or (i32.eq (local.get $tag) (i32.const -9)) (i32.eq (local.get $tag) (i32.const 7)))
        (i32.eqz (call $asks (local.get $argc) (local.get $argv))))
      (then (return (call $with_commas (local.get $ctx) (local.get $this)))))
    (call $JS_Call
      (local.get $ctx) (call $function (i32.const 3)) (local.get $this) (local.get $argc) (local.get $argv)))

  ;; queueMicrotask(callback). The engine's own would end the job queue when the callback throws.
  (func $queue_microtask (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    ;; Anything else is refused by the prelude's function, which is the one that calls it otherwise.
    (if (i32.eqz (call $JS_IsFunction (local.get $ctx) (i64.load (local.get $argv))))
      (then
        (return
          (call $JS_Call
            (local.get $ctx) (call $function (i32.const 4)) (call $undefined) (i32.const 1) (local.get $argv)))))
    ;; 583 is the place of `on_microtask` in the table.
    (if (call $JS_EnqueueJob (local.get $ctx) (i32.const 583) (i32.const 1) (local.get $argv))
      (then (return (call $exception))))
    (call $undefined))

  (func $on_microtask (param $ctx i32) (param $argc i32) (param $argv i32) (result i64)
    (call $JS_Call
      (local.get $ctx) (call $function (i32.const 4)) (call $undefined) (local.get $argc) (local.get $argv)))

  ;; JSON.parse(text, reviver). What the engine throws is explained by the prelude, unless a reviver may have thrown it.
  (func $parse_json (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $value i64)
    (local $error i64)
    (local.set $value
      (call $JS_Call (local.get $ctx) (call $function (i32.const 5)) (call $undefined) (i32.const 2) (local.get $argv)))
    (if (i32.eqz (call $is_exception (local.get $value))) (then (return (local.get $value))))
    (if (call $JS_IsFunction (local.get $ctx) (call $argument (local.get $argv) (i32.const 1)))
      (then (return (local.get $value))))
    (local.set $error (call $JS_GetException (local.get $ctx)))
    (if (i32.eqz (call $JS_IsUncatchableError (local.get $error)))
      (then
        (local.set $value
          (call $JS_Call (local.get $ctx) (call $function (i32.const 6)) (local.get $error) (i32.const 1) (local.get $argv)))
        (if (call $is_exception (local.get $value))
          (then
            (call $JS_FreeValue (local.get $ctx) (local.get $error))
            (return (local.get $value))))
        (call $JS_FreeValue (local.get $ctx) (local.get $value))))
    (call $JS_Throw (local.get $ctx) (local.get $error)))

  ;; deferred(): an array of a promise, and what resolves and rejects it. The promise has a `constructor` of its own, so that
  ;; `await` uses it as it is, whatever becomes of Promise.prototype.
  (func $deferred (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $three i32)
    (local $promise i64)
    (local.set $three (i32.add (global.get $state) (i32.const 160)))
    (local.set $promise
      (call $JS_NewPromiseCapability (local.get $ctx) (i32.add (local.get $three) (i32.const 8))))
    (if (call $is_exception (local.get $promise)) (then (return (local.get $promise))))
    (i64.store (local.get $three) (local.get $promise))
    ;; 3: writable and configurable.
    (if
      (i32.lt_s
        (call $JS_DefinePropertyValue
          (local.get $ctx) (local.get $promise) (i32.load offset=368 (global.get $state))
          (call $JS_DupValue (local.get $ctx) (call $function (i32.const 7))) (i32.const 3))
        (i32.const 0))
      (then
        (call $JS_FreeValue (local.get $ctx) (local.get $promise))
        (call $JS_FreeValue (local.get $ctx) (i64.load offset=8 (local.get $three)))
        (call $JS_FreeValue (local.get $ctx) (i64.load offset=16 (local.get $three)))
        (return (call $exception))))
    ;; It frees all three if there is no memory for the array.
    (call $JS_NewArrayFrom (local.get $ctx) (i32.const 3) (local.get $three)))

  ;; evaluate(text, name): the value of a script. Its frames in stacks have the name.
  (func $evaluate (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $text i32)
    (local $length i32)
    (local $name i32)
    (local $value i64)
    (local.set $text
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)) (i32.const 0)))
    (if (i32.eqz (local.get $text)) (then (return (call $exception))))
    (local.set $length (i32.load offset=136 (global.get $state)))
    (local.set $name
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (call $argument (local.get $argv) (i32.const 1))
        (i32.const 0)))
    (if (i32.eqz (local.get $name))
      (then (call $JS_FreeCString (local.get $ctx) (local.get $text)) (return (call $exception))))
    (local.set $value
      (call $JS_Eval (local.get $ctx) (local.get $text) (local.get $length) (local.get $name) (i32.const 0)))
    (call $JS_FreeCString (local.get $ctx) (local.get $name))
    (call $JS_FreeCString (local.get $ctx) (local.get $text))
    (local.get $value))

  ;; longDigits(text): true if a JSON text may have an integer of 16 digits or more. A run of 16 digits has one digit whose
  ;; position is 15 more than a multiple of 16, so only these are looked at.
  (func $long_digits (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $text i32)
    (local $found i32)
    (local.set $text
      (call $JS_ToCStringLen2
        (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)) (i32.const 0)))
    (if (i32.eqz (local.get $text)) (then (return (call $exception))))
    (local.set $found
      (call $has_long_digits
        (local.get $text) (i32.add (local.get $text) (i32.load offset=136 (global.get $state)))))
    (call $JS_FreeCString (local.get $ctx) (local.get $text))
    (i64.or (i64.const 0x100000000) (i64.extend_i32_u (local.get $found))))

  (func $has_long_digits (param $text i32) (param $end i32) (result i32)
    (local $at i32)
    (local $start i32)
    (local $stop i32)
    (local.set $at (i32.add (local.get $text) (i32.const 15)))
    (loop $each
      (if (i32.ge_u (local.get $at) (local.get $end)) (then (return (i32.const 0))))
      (if (call $is_digit (local.get $at))
        (then
          (local.set $start (local.get $at))
          (block $begun
            (loop $digits
              (br_if $begun (i32.eq (local.get $start) (local.get $text)))
              (br_if $begun (i32.eqz (call $is_digit (i32.sub (local.get $start) (i32.const 1)))))
              (local.set $start (i32.sub (local.get $start) (i32.const 1)))
              (br $digits)))
          (local.set $stop (i32.add (local.get $at) (i32.const 1)))
          (block $ended
            (loop $digits
              (br_if $ended (i32.eq (local.get $stop) (local.get $end)))
              (br_if $ended (i32.eqz (call $is_digit (local.get $stop))))
              (local.set $stop (i32.add (local.get $stop) (i32.const 1)))
              (br $digits)))
          (if
            (i32.and
              (i32.ge_u (i32.sub (local.get $stop) (local.get $start)) (i32.const 16))
              (i32.and
                (call $begins_number (local.get $text) (local.get $start))
                (call $ends_number (local.get $stop) (local.get $end))))
            (then (return (i32.const 1))))
          (local.set $at
            (i32.add
              (local.get $text)
              (i32.or (i32.sub (local.get $stop) (local.get $text)) (i32.const 15)))))
        (else (local.set $at (i32.add (local.get $at) (i32.const 16)))))
      (br $each))
    (unreachable))

  (func $is_digit (param $at i32) (result i32)
    (i32.lt_u (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30)) (i32.const 10)))

  ;; Digits that begin here may begin a number of JSON, apart from a sign: in front is nothing, a blank, or one of , : [
  (func $begins_number (param $text i32) (param $at i32) (result i32)
    (local $byte i32)
    (if (i32.eq (local.get $at) (local.get $text)) (then (return (i32.const 1))))
    (local.set $byte (i32.load8_u (i32.sub (local.get $at) (i32.const 1))))
    (if (i32.eq (local.get $byte) (i32.const 0x2d))
      (then
        (local.set $at (i32.sub (local.get $at) (i32.const 1)))
        (if (i32.eq (local.get $at) (local.get $text)) (then (return (i32.const 1))))
        (local.set $byte (i32.load8_u (i32.sub (local.get $at) (i32.const 1))))))
    (i32.or
      (i32.or (i32.le_u (local.get $byte) (i32.const 0x20)) (i32.eq (local.get $byte) (i32.const 0x2c)))
      (i32.or (i32.eq (local.get $byte) (i32.const 0x3a)) (i32.eq (local.get $byte) (i32.const 0x5b)))))

  ;; Digits that stop here may be a whole integer of JSON: behind is nothing, a blank, or one of , ] }
  (func $ends_number (param $stop i32) (param $end i32) (result i32)
    (local $byte i32)
    (if (i32.eq (local.get $stop) (local.get $end)) (then (return (i32.const 1))))
    (local.set $byte (i32.load8_u (local.get $stop)))
    (i32.or
      (i32.or (i32.le_u (local.get $byte) (i32.const 0x20)) (i32.eq (local.get $byte) (i32.const 0x2c)))
      (i32.eq (i32.and (local.get $byte) (i32.const 0xdf)) (i32.const 0x5d))))

  ;; The hooks. Each has the signature of the function of the engine that it replaces. The original ones are in the table
  ;; from 620 on. Until the prelude has set its function, a hook does what the original does.

  (type $regexp_compiler (func (param i32 i64 i64) (result i64)))
  (type $regexp_getter (func (param i32 i64 i32) (result i64)))
  (type $method (func (param i32 i64 i32 i32) (result i64)))
  (type $magic_method (func (param i32 i64 i32 i32 i32) (result i64)))
  (type $stack_builder (func (param i32 i64 i64 i32 i32 i32 i32)))
  (type $error_maker (func (param i32 i64) (result i64)))
  (type $copier (func (param i32 i64 i64 i64 i32) (result i32)))

  ;; The pattern of a literal or of a constructor, before it is compiled. The prelude translates what the engine would
  ;; misread: patterns with the flag `v`, and those with both `i` and `u`. It gets the flags as bits: 1 for `a`, 2 for `b`.
  (func $compile_regexp (type $regexp_compiler) (param $ctx i32) (param $pattern i64) (param $flags i64) (result i64)
    (local $text i32)
    (local $at i32)
    (local $letters i32)
    (local $value i64)
    (block $plain
      (br_if $plain
        (i32.eqz
          (i32.and
            (i64.ne (call $function (i32.const 12)) (i64.const 0))
            (i32.and (call $is_text (local.get $flags)) (call $is_text (local.get $pattern))))))
      (local.set $text
        (call $JS_ToCStringLen2
          (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $flags) (i32.const 0)))
      (if (i32.eqz (local.get $text)) (then (return (call $exception))))
      (local.set $at (local.get $text))
      (block $end
        (loop $each
          (br_if $end (i32.eqz (i32.load8_u (local.get $at))))
          (local.set $letters
            (i32.or
              (local.get $letters)
              (i32.shl (i32.const 1) (i32.sub (i32.load8_u (local.get $at)) (i32.const 97)))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $each)))
      (call $JS_FreeCString (local.get $ctx) (local.get $text))
      (if (i32.and (local.get $letters) (i32.const 0x200000))
        (then (i32.store offset=476 (global.get $state) (i32.const 1))))
      (br_if $plain
        (i32.eqz
          (i32.or
            (i32.and (local.get $letters) (i32.const 0x200000))
            (i32.eq (i32.and (local.get $letters) (i32.const 0x100100)) (i32.const 0x100100)))))
      (i64.store offset=160 (global.get $state) (local.get $pattern))
      (i64.store offset=168 (global.get $state) (i64.extend_i32_u (local.get $letters)))
      (local.set $pattern
        (call $JS_Call
          (local.get $ctx) (call $function (i32.const 12)) (call $undefined) (i32.const 2)
          (i32.add (global.get $state) (i32.const 160))))
      (if (call $is_exception (local.get $pattern)) (then (return (local.get $pattern))))
      (local.set $value
        (call_indirect (type $regexp_compiler)
          (local.get $ctx) (local.get $pattern) (local.get $flags) (i32.const 620)))
      (call $JS_FreeValue (local.get $ctx) (local.get $pattern))
      (return (local.get $value)))
    (call_indirect (type $regexp_compiler)
      (local.get $ctx) (local.get $pattern) (local.get $flags) (i32.const 620)))

  ;; A flag of a regular expression by its bit. With `v` (256), the engine has the bit of `u` (16) set, too.
  (func $regexp_flag (type $regexp_getter) (param $ctx i32) (param $this i64) (param $flag i32) (result i64)
    (local $value i64)
    (if (i32.eq (local.get $flag) (i32.const 16))
      (then
        (local.set $value
          (call_indirect (type $regexp_getter)
            (local.get $ctx) (local.get $this) (i32.const 256) (i32.const 621)))
        (if (call $is_exception (local.get $value)) (then (return (local.get $value))))
        (if (i64.eq (local.get $value) (i64.const 0x100000001)) (then (return (i64.const 0x100000000))))))
    (call_indirect (type $regexp_getter) (local.get $ctx) (local.get $this) (local.get $flag) (i32.const 621)))

  ;; The engine does not know that an empty match with the flag `v` is behind a whole character, too: where it asks for the
  ;; next index, it has just called `exec`.
  (global $sets (mut i32) (i32.const 0)) ;; the pattern of the last `exec` has the flag

  (func $regexp_exec (type $method) (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $found i64)
    (local.set $found
      (call_indirect (type $method)
        (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (i32.const 628)))
    (if (i32.load offset=476 (global.get $state))
      (then
        (if (call $is_exception (local.get $found)) (then (return (local.get $found))))
        (global.set $sets
          (i64.eq
            (call_indirect (type $regexp_getter)
              (local.get $ctx) (local.get $this) (i32.const 256) (i32.const 621))
            (i64.const 0x100000001)))))
    (local.get $found))

  (func $advance_index (type $regexp_getter) (param $text i32) (param $index i64) (param $unicode i32) (result i64)
    (call_indirect (type $regexp_getter)
      (local.get $text) (local.get $index) (i32.or (local.get $unicode) (global.get $sets)) (i32.const 629)))

  ;; The time of a text, for Date.parse and for the constructor. Most texts have a form that is read here.
  (func $parse_date (type $method) (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $text i32)
    (local $time f64)
    (if (i64.eqz (call $function (i32.const 13)))
      (then
        (return
          (call_indirect (type $method)
            (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (i32.const 622)))))
    (if (call $is_text (i64.load (local.get $argv)))
      (then
        (local.set $text
          (call $JS_ToCStringLen2
            (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (i64.load (local.get $argv)) (i32.const 0)))
        (if (i32.eqz (local.get $text)) (then (return (call $exception))))
        (local.set $time (call $iso_time (local.get $text) (i32.load offset=136 (global.get $state))))
        (call $JS_FreeCString (local.get $ctx) (local.get $text))
        (if (f64.eq (local.get $time) (local.get $time))
          (then (return (call $JS_NewNumber (local.get $ctx) (local.get $time)))))))
    (call $JS_Call
      (local.get $ctx) (call $function (i32.const 13)) (call $undefined) (i32.const 1) (local.get $argv)))

  ;; The milliseconds of `YYYY-MM-DD`, alone or with `T` or a space and `HH:MM:SS`, one to nine digits of a fraction, and
  ;; `Z` or `+HH:MM`. NaN for any other form, for early years with a space, and for what is out of range: the prelude
  ;; decides about that. At the end of a text is a 0.
  (func $iso_time (param $text i32) (param $size i32) (result f64)
    (local $end i32)
    (local $year i32)
    (local $month i32)
    (local $day i32)
    (local $era i32)
    (local $seconds i64)
    (local $offset i32)
    (local $digit i32)
    (local $scale i32)
    (local $fraction i32)
    (local $sign i32)
    (local.set $end (i32.add (local.get $text) (local.get $size)))
    (block $other
      (br_if $other (i32.lt_u (local.get $size) (i32.const 10)))
      (local.set $year
        (i32.add
          (i32.mul (call $two_digits (local.get $text)) (i32.const 100))
          (call $two_digits (i32.add (local.get $text) (i32.const 2)))))
      (local.set $month (call $two_digits (i32.add (local.get $text) (i32.const 5))))
      (local.set $day (call $two_digits (i32.add (local.get $text) (i32.const 8))))
      ;; What has no two digits there is far above.
      (br_if $other (i32.gt_u (local.get $year) (i32.const 9999)))
      (br_if $other (i32.ge_u (i32.sub (local.get $month) (i32.const 1)) (i32.const 12)))
      (br_if $other (i32.ge_u (i32.sub (local.get $day) (i32.const 1)) (i32.const 31)))
      (br_if $other (i32.ne (i32.load8_u offset=4 (local.get $text)) (i32.const 0x2d)))
      (br_if $other (i32.ne (i32.load8_u offset=7 (local.get $text)) (i32.const 0x2d)))
      (if (i32.ne (local.get $size) (i32.const 10))
        (then
          (br_if $other (i32.lt_u (local.get $size) (i32.const 19)))
          (br_if $other
            (i32.and
              (i32.ne (i32.load8_u offset=10 (local.get $text)) (i32.const 0x54))
              (i32.or
                (i32.ne (i32.load8_u offset=10 (local.get $text)) (i32.const 0x20))
                (i32.lt_u (local.get $year) (i32.const 100)))))
          (br_if $other (i32.ne (i32.load8_u offset=13 (local.get $text)) (i32.const 0x3a)))
          (br_if $other (i32.ne (i32.load8_u offset=16 (local.get $text)) (i32.const 0x3a)))
          (local.set $digit (call $two_digits (i32.add (local.get $text) (i32.const 11))))
          (br_if $other (i32.gt_u (local.get $digit) (i32.const 23)))
          (local.set $seconds (i64.mul (i64.extend_i32_u (local.get $digit)) (i64.const 3600)))
          (local.set $digit (call $two_digits (i32.add (local.get $text) (i32.const 14))))
          (br_if $other (i32.gt_u (local.get $digit) (i32.const 59)))
          (local.set $seconds
            (i64.add (local.get $seconds) (i64.extend_i32_u (i32.mul (local.get $digit) (i32.const 60)))))
          (local.set $digit (call $two_digits (i32.add (local.get $text) (i32.const 17))))
          (br_if $other (i32.gt_u (local.get $digit) (i32.const 59)))
          (local.set $seconds (i64.add (local.get $seconds) (i64.extend_i32_u (local.get $digit))))
          (local.set $text (i32.add (local.get $text) (i32.const 19)))
          (if (i32.eq (i32.load8_u (local.get $text)) (i32.const 0x2e))
            (then
              (local.set $scale (i32.const 1000))
              (block $over
                (loop $each
                  (local.set $text (i32.add (local.get $text) (i32.const 1)))
                  (local.set $digit (i32.sub (i32.load8_u (local.get $text)) (i32.const 0x30)))
                  (br_if $over (i32.gt_u (local.get $digit) (i32.const 9)))
                  (local.set $sign (i32.add (local.get $sign) (i32.const 1)))
                  (local.set $scale (i32.div_u (local.get $scale) (i32.const 10)))
                  (local.set $fraction
                    (i32.add (local.get $fraction) (i32.mul (local.get $digit) (local.get $scale))))
                  (br $each)))
              (br_if $other (i32.gt_u (i32.sub (local.get $sign) (i32.const 1)) (i32.const 8)))))
          (local.set $digit (i32.load8_u (local.get $text)))
          (if (i32.eq (local.get $digit) (i32.const 0x5a))
            (then (local.set $text (i32.add (local.get $text) (i32.const 1))))
            (else
              (local.set $sign (i32.sub (i32.const 0x2c) (local.get $digit)))
              (if (i32.or (i32.eq (local.get $sign) (i32.const 1)) (i32.eq (local.get $sign) (i32.const -1)))
                (then
                  (br_if $other (i32.lt_u (i32.sub (local.get $end) (local.get $text)) (i32.const 6)))
                  (br_if $other (i32.ne (i32.load8_u offset=3 (local.get $text)) (i32.const 0x3a)))
                  (local.set $digit (call $two_digits (i32.add (local.get $text) (i32.const 1))))
                  (br_if $other (i32.gt_u (local.get $digit) (i32.const 23)))
                  (local.set $offset (i32.mul (local.get $digit) (i32.const 60)))
                  (local.set $digit (call $two_digits (i32.add (local.get $text) (i32.const 4))))
                  (br_if $other (i32.gt_u (local.get $digit) (i32.const 59)))
                  (local.set $offset
                    (i32.mul (i32.add (local.get $offset) (local.get $digit)) (local.get $sign)))
                  (local.set $text (i32.add (local.get $text) (i32.const 6)))))))
          (br_if $other (i32.ne (local.get $text) (local.get $end)))))
      ;; Days since 0000-03-01: a year begins in March here, so that a leap day is its last one.
      (if (i32.lt_u (local.get $month) (i32.const 3))
        (then
          (br_if $other (i32.eqz (local.get $year)))
          (local.set $year (i32.sub (local.get $year) (i32.const 1)))
          (local.set $month (i32.add (local.get $month) (i32.const 12)))))
      (local.set $era (i32.div_u (local.get $year) (i32.const 100)))
      (local.set $day
        (i32.add
          (i32.add
            (i32.sub (local.get $day) (i32.const 1))
            (i32.div_u (i32.sub (i32.mul (local.get $month) (i32.const 153)) (i32.const 457)) (i32.const 5)))
          (i32.add
            (i32.add (i32.mul (local.get $year) (i32.const 365)) (i32.div_u (local.get $year) (i32.const 4)))
            (i32.sub (i32.div_u (local.get $era) (i32.const 4)) (local.get $era)))))
      (local.set $seconds
        (i64.sub
          (i64.add
            (i64.mul (i64.extend_i32_s (i32.sub (local.get $day) (i32.const 719468))) (i64.const 86400))
            (local.get $seconds))
          (i64.extend_i32_s (i32.mul (local.get $offset) (i32.const 60)))))
      (return
        (f64.convert_i64_s
          (i64.add (i64.mul (local.get $seconds) (i64.const 1000)) (i64.extend_i32_u (local.get $fraction))))))
    (f64.const nan))

  ;; The number of two digits, or a large one where something else is.
  (func $two_digits (param $text i32) (result i32)
    (local $tens i32)
    (local $ones i32)
    (local.set $tens (i32.sub (i32.load8_u (local.get $text)) (i32.const 0x30)))
    (local.set $ones (i32.sub (i32.load8_u offset=1 (local.get $text)) (i32.const 0x30)))
    (if (i32.or (i32.gt_u (local.get $tens) (i32.const 9)) (i32.gt_u (local.get $ones) (i32.const 9)))
      (then (return (i32.const 1000000))))
    (i32.add (i32.mul (local.get $tens) (i32.const 10)) (local.get $ones)))

  ;; The text of a date. In the high half of `parts` is the form, 1 for toString and the like; 2 is the time of the day.
  (func $date_string (type $magic_method)
    (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (param $parts i32) (result i64)
    (local $text i64)
    (local.set $text
      (call_indirect (type $magic_method)
        (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (local.get $parts) (i32.const 623)))
    (if
      (i32.or
        (i32.ne (i32.and (local.get $parts) (i32.const 0xf2)) (i32.const 0x12))
        (i32.or (call $is_exception (local.get $text)) (i64.eqz (call $function (i32.const 14)))))
      (then (return (local.get $text))))
    (i64.store offset=160 (global.get $state) (local.get $text))
    (local.set $text
      (call $JS_Call
        (local.get $ctx) (call $function (i32.const 14)) (call $undefined) (i32.const 1)
        (i32.add (global.get $state) (i32.const 160))))
    (call $JS_FreeValue (local.get $ctx) (i64.load offset=160 (global.get $state)))
    (local.get $text))

  ;; A setter of a part of a date. The engine returns NaN for a part that is no number, but leaves the date as it is.
  (func $set_date (type $magic_method)
    (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (param $parts i32) (result i64)
    (local $time i64)
    (local.set $time
      (call_indirect (type $magic_method)
        (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (local.get $parts) (i32.const 630)))
    (if (call $is_exception (local.get $time)) (then (return (local.get $time))))
    (drop (call $JS_ToFloat64 (local.get $ctx) (i32.add (global.get $state) (i32.const 136)) (local.get $time)))
    (if (f64.eq (f64.load offset=136 (global.get $state)) (f64.load offset=136 (global.get $state)))
      (then (return (local.get $time))))
    (i64.store offset=160 (global.get $state) (local.get $time))
    (call $JS_Call
      (local.get $ctx) (call $function (i32.const 19)) (local.get $this) (i32.const 1)
      (i32.add (global.get $state) (i32.const 160))))

  ;; The engine gives an error its frames as `stack`. Afterwards `stack` is an accessor of the prelude, which makes the
  ;; text when it is read, as Node.js does, and the frames are where no program can read them.
  (func $backtrace (type $stack_builder)
    (param $ctx i32) (param $error i64) (param $filter i64) (param $file i32) (param $line i32) (param $column i32)
    (param $flags i32)
    (local $pending i64)
    (call_indirect (type $stack_builder)
      (local.get $ctx) (local.get $error) (local.get $filter) (local.get $file) (local.get $line) (local.get $column)
      (local.get $flags) (i32.const 624))
    (if (i64.eqz (call $function (i32.const 15))) (then (return)))
    (if (i32.ne (call $tag (local.get $error)) (i32.const -1)) (then (return)))
    (if (call $JS_IsProxy (local.get $error)) (then (return)))
    ;; An exception is pending where one passes through a frame. It stays, whatever happens here.
    (if (call $JS_HasException (local.get $ctx))
      (then (local.set $pending (call $JS_GetException (local.get $ctx)))))
    (if (call $own_data (local.get $ctx) (local.get $error) (i32.load offset=464 (global.get $state)))
      (then
        (if (call $is_text (i64.load offset=208 (global.get $state)))
          (then (drop (call $hide_stack (local.get $ctx) (local.get $error) (i64.load offset=208 (global.get $state)))))
          (else (call $JS_FreeValue (local.get $ctx) (i64.load offset=208 (global.get $state)))))))
    (if (call $JS_HasException (local.get $ctx)) (then (call $drop_exception)))
    (if (i64.ne (local.get $pending) (i64.const 0))
      (then (drop (call $JS_Throw (local.get $ctx) (local.get $pending))))))

  ;; Give an object hidden frames, which are freed, and the accessor. 0 where the object takes no more, less when that fails.
  (func $hide_stack (param $ctx i32) (param $object i64) (param $frames i64) (result i32)
    (local $status i32)
    ;; 3: writable and configurable.
    (local.set $status
      (call $JS_DefinePropertyValue
        (local.get $ctx) (local.get $object) (i32.load offset=472 (global.get $state)) (local.get $frames)
        (i32.const 3)))
    (if (i32.ne (local.get $status) (i32.const 1)) (then (return (local.get $status))))
    (call $JS_DefinePropertyGetSet
      (local.get $ctx) (local.get $object) (i32.load offset=464 (global.get $state))
      (call $JS_DupValue (local.get $ctx) (call $function (i32.const 15)))
      (call $JS_DupValue (local.get $ctx) (call $function (i32.const 16)))
      (i32.const 1)))

  ;; rawStack(value): the frames of the engine, or undefined.
  (func $raw_stack (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (if (i32.ne (call $tag (i64.load (local.get $argv))) (i32.const -1)) (then (return (call $undefined))))
    (if (call $JS_IsProxy (i64.load (local.get $argv))) (then (return (call $undefined))))
    (if
      (call $own_data
        (local.get $ctx) (i64.load (local.get $argv)) (i32.load offset=472 (global.get $state)))
      (then (return (i64.load offset=208 (global.get $state)))))
    (call $undefined))

  ;; setRawStack(error, frames)
  (func $set_raw_stack (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (if
      (i32.lt_s
        (call $hide_stack
          (local.get $ctx) (i64.load (local.get $argv))
          (call $JS_DupValue (local.get $ctx) (call $argument (local.get $argv) (i32.const 1))))
        (i32.const 0))
      (then (return (call $exception))))
    (call $undefined))

  ;; The target of a WeakRef stays until the end of the turn in which it was made or read.
  (func $weak_ref (type $method) (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $made i64)
    (local.set $made
      (call_indirect (type $method)
        (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (i32.const 625)))
    (if (call $is_exception (local.get $made)) (then (return (local.get $made))))
    (if (call $kept (local.get $ctx) (local.get $argv)) (then (return (local.get $made))))
    (call $JS_FreeValue (local.get $ctx) (local.get $made))
    (call $exception))

  (func $deref (type $method) (param $ctx i32) (param $this i64) (param $argc i32) (param $argv i32) (result i64)
    (local $target i64)
    (local.set $target
      (call_indirect (type $method)
        (local.get $ctx) (local.get $this) (local.get $argc) (local.get $argv) (i32.const 626)))
    (if (call $is_exception (local.get $target)) (then (return (local.get $target))))
    (if (i64.eq (local.get $target) (call $undefined)) (then (return (local.get $target))))
    (i64.store offset=160 (global.get $state) (local.get $target))
    (if (call $kept (local.get $ctx) (i32.add (global.get $state) (i32.const 160)))
      (then (return (local.get $target))))
    (call $JS_FreeValue (local.get $ctx) (local.get $target))
    (call $exception))

  (func $kept (param $ctx i32) (param $argv i32) (result i32)
    (local $result i64)
    (if (i64.eqz (call $function (i32.const 17))) (then (return (i32.const 1))))
    (local.set $result
      (call $JS_Call
        (local.get $ctx) (call $function (i32.const 17)) (call $undefined) (i32.const 1) (local.get $argv)))
    (call $JS_FreeValue (local.get $ctx) (local.get $result))
    (i32.eqz (call $is_exception (local.get $result))))

  ;; The error with which Promise.any rejects. The engine gives it neither a message nor frames.
  (func $aggregate (type $error_maker) (param $ctx i32) (param $errors i64) (result i64)
    (local $error i64)
    (local.set $error
      (call_indirect (type $error_maker) (local.get $ctx) (local.get $errors) (i32.const 627)))
    (if (call $is_exception (local.get $error)) (then (return (local.get $error))))
    (if
      (i32.and
        (i32.gt_s
          (call $JS_DefinePropertyValue
            (local.get $ctx) (local.get $error) (i32.load offset=468 (global.get $state))
            (call $JS_DupValue (local.get $ctx) (call $function (i32.const 18))) (i32.const 3))
          (i32.const -1))
        (i32.gt_s
          (call $hide_stack
            (local.get $ctx) (local.get $error)
            (call $JS_NewStringLen (local.get $ctx) (global.get $state) (i32.const 0)))
          (i32.const -1)))
      (then (return (local.get $error))))
    (call $JS_FreeValue (local.get $ctx) (local.get $error))
    (call $exception))

  ;; Members of a value for `{ ...value }`. The engine ignores values that are no objects, but a string has members.
  (func $copy_members (type $copier)
    (param $ctx i32) (param $target i64) (param $source i64) (param $left_out i64) (param $setting i32) (result i32)
    (local $boxed i64)
    (local $status i32)
    (if (i32.eqz (call $is_text (local.get $source)))
      (then
        (return
          (call_indirect (type $copier)
            (local.get $ctx) (local.get $target) (local.get $source) (local.get $left_out) (local.get $setting)
            (i32.const 631)))))
    (i64.store offset=160 (global.get $state) (local.get $source))
    (local.set $boxed
      (call $JS_Call
        (local.get $ctx) (call $function (i32.const 20)) (call $undefined) (i32.const 1)
        (i32.add (global.get $state) (i32.const 160))))
    (if (call $is_exception (local.get $boxed)) (then (return (i32.const -1))))
    (local.set $status
      (call_indirect (type $copier)
        (local.get $ctx) (local.get $target) (local.get $boxed) (local.get $left_out) (local.get $setting)
        (i32.const 631)))
    (call $JS_FreeValue (local.get $ctx) (local.get $boxed))
    (local.get $status))
)
