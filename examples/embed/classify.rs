//! Loads a model and runs it on numbers of the command line, in Rust without any crate:
//!   classify MODEL WIDTH NUMBER...
//! The input has rows of WIDTH numbers. Build: rustc classify.rs -L DIRECTORY -l coracle_c

use std::ffi::{c_char, c_void, CStr, CString};
use std::{env, process, ptr, slice};

#[repr(C)]
struct Tensor {
    struct_size: u32,
    dtype: i32,
    rank: i32,
    lod_levels: i32,
    dims: *const i64,
    data: *mut c_void,
    bytes: u64,
    lod: *const *const u64,
    lod_sizes: *const u64,
    capacity: u64, // 0 for an output: the session owns its elements
}

const FLOAT32: i32 = 5;

extern "C" {
    fn coracle_last_error() -> *const c_char;
    fn coracle_model_load(path: *const c_char, options: *const c_void, model: *mut *mut c_void) -> i32;
    fn coracle_model_free(model: *mut c_void);
    fn coracle_session_new(model: *const c_void, session: *mut *mut c_void) -> i32;
    fn coracle_session_free(session: *mut c_void);
    fn coracle_session_run(
        session: *mut c_void,
        inputs: *const Tensor,
        input_count: i32,
        outputs: *mut Tensor,
        output_count: i32,
    ) -> i32;
}

/// A model with one session, of one input and one output.
struct Model {
    model: *mut c_void,
    session: *mut c_void,
}

fn check(status: i32) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(coracle_last_error()) }.to_string_lossy().into_owned())
}

impl Model {
    fn load(path: &str) -> Result<Model, String> {
        let path = CString::new(path).map_err(|_| "a path with a zero byte".to_string())?;
        let mut it = Model { model: ptr::null_mut(), session: ptr::null_mut() };
        check(unsafe { coracle_model_load(path.as_ptr(), ptr::null(), &mut it.model) })?;
        check(unsafe { coracle_session_new(it.model, &mut it.session) })?;
        Ok(it)
    }

    /// A copy of the result. `&mut self`: a session runs in one thread at a time.
    fn run(&mut self, dims: &[i64], numbers: &mut [f32]) -> Result<Vec<f32>, String> {
        let tensor = |dtype, dims: &[i64], data, bytes| Tensor {
            struct_size: std::mem::size_of::<Tensor>() as u32,
            dtype,
            rank: dims.len() as i32,
            lod_levels: 0,
            dims: dims.as_ptr(),
            data,
            bytes,
            lod: ptr::null(),
            lod_sizes: ptr::null(),
            capacity: 0,
        };
        let bytes = 4 * numbers.len() as u64;
        let input = tensor(FLOAT32, dims, numbers.as_mut_ptr() as *mut c_void, bytes);
        let mut output = tensor(0, &[], ptr::null_mut(), 0);
        check(unsafe { coracle_session_run(self.session, &input, 1, &mut output, 1) })?;
        if output.dtype != FLOAT32 {
            return Err("the result is not float32".to_string());
        }
        let count = output.bytes as usize / 4;
        if count == 0 {
            return Ok(Vec::new()); // its data may be null, which a slice must not be
        }
        Ok(unsafe { slice::from_raw_parts(output.data as *const f32, count) }.to_vec())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe {
            coracle_session_free(self.session);
            coracle_model_free(self.model);
        }
    }
}

fn classify(arguments: &[String]) -> Result<(), String> {
    let width: i64 = arguments[1].parse().map_err(|_| "WIDTH must be a number".to_string())?;
    let mut numbers = Vec::new();
    for text in &arguments[2..] {
        numbers.push(text.parse::<f32>().map_err(|_| format!("{text} is no number"))?);
    }
    let rows = numbers.len() as i64 / width.max(1);
    for value in Model::load(&arguments[0])?.run(&[rows, width], &mut numbers)? {
        println!("{value}");
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.len() < 3 {
        eprintln!("usage: classify MODEL WIDTH NUMBER...");
        process::exit(2);
    }
    if let Err(message) = classify(&arguments) {
        eprintln!("classify: {message}");
        process::exit(1);
    }
}
